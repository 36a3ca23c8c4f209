package main

import (
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"walproxy/cmd/walproxy/internal/config"
)

// newLogger returns a logger that writes to w: console on a terminal, JSON otherwise, unless c says which. Its level can be
// changed later.
func newLogger(c config.Log, w io.Writer) (*zap.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevelAt(logLevel(c))
	console := c.Format == "console" || c.Format == "auto" && isTerminal(w)
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey, encoding.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(encoding)
	if console {
		encoding.EncodeTime = zapcore.ISO8601TimeEncoder
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level), zap.ErrorOutput(zapcore.Lock(os.Stderr))), level
}

func logLevel(c config.Log) zapcore.Level {
	level, err := zapcore.ParseLevel(string(c.Level))
	if err != nil {
		return zapcore.InfoLevel
	}
	return level
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
