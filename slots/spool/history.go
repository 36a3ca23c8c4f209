package spool

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/slots/fs"
)

const historySuffix = ".history"

// History returns the content of tli's history file. The caller may not change it.
func (l *Log) History(tli protocol.Timeline) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, ok := l.histories[tli]
	return content, ok
}

// AddHistory stores the content of tli's history file verbatim; it is durable on return. The content stored already is no
// error, another one is ErrHistoryDiffers. content may be reused.
func (l *Log) AddHistory(tli protocol.Timeline, content []byte) error {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	if have, ok := l.History(tli); ok {
		if bytes.Equal(have, content) {
			return nil
		}
		return fmt.Errorf("store history of timeline %d: %w; another server was promoted to the same timeline?", tli, ErrHistoryDiffers)
	}
	if _, err := protocol.ParseHistory(tli, content); err != nil {
		return fmt.Errorf("store history: %w", err)
	}
	dir := l.historyDir()
	if err := l.fs.MkdirAll(dir); err != nil {
		return fmt.Errorf("store history of timeline %d: %w", tli, full(err))
	}
	if err := l.syncDir(l.dir); err != nil {
		return fmt.Errorf("store history of timeline %d: %w", tli, err)
	}
	if err := l.writeFile(path.Join(dir, protocol.HistoryName(tli)), content); err != nil {
		return fmt.Errorf("store history of timeline %d: %w", tli, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.histories[tli] = bytes.Clone(content)
	return nil
}

func (l *Log) historyDir() string { return path.Join(l.dir, "history") }

func (l *Log) loadHistories() error {
	names, err := l.fs.ReadDir(l.historyDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list histories: %w", err)
	}
	for _, name := range names {
		file := path.Join(l.historyDir(), name)
		stem, isHistory := strings.CutSuffix(name, historySuffix)
		number, ok := parseHex(stem, 8)
		switch {
		case isHistory && ok:
			if err := l.loadHistory(protocol.Timeline(number), file); err != nil {
				return err
			}
		case strings.HasSuffix(name, fs.TempSuffix):
			if err := l.fs.Remove(file); err != nil {
				return fmt.Errorf("remove leftover: %w", err)
			}
		default:
			l.logger.Warn("unknown file among the histories", zap.String("file", file))
		}
	}
	return nil
}

func (l *Log) loadHistory(tli protocol.Timeline, file string) error {
	content, err := fs.ReadFile(l.fs, file, protocol.MaxHistoryBytes)
	if err != nil {
		return err
	}
	if _, err := protocol.ParseHistory(tli, content); err != nil {
		return &CorruptError{File: file, Err: err, Hint: "replace it by the file of the same name in the upstream's pg_wal"}
	}
	l.histories[tli] = content
	return nil
}
