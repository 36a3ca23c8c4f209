package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// peer is a general compressor. It reads standard input and writes standard output.
type peer struct {
	name           string
	encode, decode []string
}

// peers are those that are run where they are installed, each on one processor.
var peers = []peer{
	{"zstd -3", []string{"zstd", "-3", "-T1", "-q", "-c"}, []string{"zstd", "-d", "-q", "-c"}},
	{"zstd -19 --long=27", []string{"zstd", "-19", "--long=27", "-T1", "-q", "-c"}, []string{"zstd", "-d", "--long=27", "-q", "-c"}},
	{"xz -9e", []string{"xz", "-9e", "-T1", "-q", "-c"}, []string{"xz", "-d", "-T1", "-q", "-c"}},
	{"lz4", []string{"lz4", "-T1", "-q", "-c"}, []string{"lz4", "-d", "-T1", "-q", "-c"}},
	{"gzip", []string{"gzip", "-q", "-c"}, []string{"gzip", "-d", "-q", "-c"}},
}

// PeerNames returns the names of the general compressors, installed or not.
func PeerNames() []string {
	var names []string
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// runPeers runs the bytes of all streams, one behind the other, through those of the named compressors that are installed. They read
// a file, as walproxy does, and not a pipe: several files become one in the temporary directory for as long as it takes.
func runPeers(ctx context.Context, streams []stream, names []string) ([]Peer, error) {
	input, remove, err := oneFile(ctx, streams)
	if err != nil {
		return nil, err
	}
	defer remove()
	info, err := os.Stat(input)
	if err != nil {
		return nil, err
	}
	var results []Peer
	for _, p := range peers {
		if _, err := exec.LookPath(p.encode[0]); err != nil || !slices.Contains(names, p.name) {
			continue
		}
		result, err := p.withoutThreadsFlag(ctx).run(ctx, input, info.Size())
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// oneFile returns the name of a file with the bytes of all streams; remove ends what was made for it.
func oneFile(ctx context.Context, streams []stream) (name string, remove func(), err error) {
	if len(streams) == 1 && len(streams[0].files) == 1 {
		return streams[0].files[0].path, func() {}, nil
	}
	file, err := os.CreateTemp("", "walproxy-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.Remove(file.Name()) }
	for i := range streams {
		for _, f := range streams[i].files {
			if err == nil {
				err = appendFile(ctx, file, f.path)
			}
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		remove()
		return "", nil, err
	}
	return file.Name(), remove, nil
}

func appendFile(ctx context.Context, dst io.Writer, path string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	src, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	_, err = io.Copy(dst, src)
	return err
}

// withoutThreadsFlag returns p without -T1 if the installed version does not know it; such a version has no threads.
func (p peer) withoutThreadsFlag(ctx context.Context) peer {
	probe := exec.CommandContext(ctx, p.encode[0], p.encode[1:]...)
	if probe.Run() == nil { // an empty input
		return p
	}
	p.encode, p.decode = withoutT1(p.encode), withoutT1(p.decode)
	return p
}

func withoutT1(args []string) []string {
	var kept []string
	for _, arg := range args {
		if arg != "-T1" {
			kept = append(kept, arg)
		}
	}
	return kept
}

// run compresses input into a temporary file and expands it again.
func (p peer) run(ctx context.Context, input string, rawBytes int64) (Peer, error) {
	result := Peer{Name: p.name, rawBytes: rawBytes}
	out, err := os.CreateTemp("", "walproxy-bench-")
	if err != nil {
		return result, err
	}
	defer func() {
		_ = out.Close()
		_ = os.Remove(out.Name())
	}()
	if result.encodeTime, err = pipe(ctx, p.encode, input, out); err != nil {
		return result, err
	}
	info, err := out.Stat()
	if err != nil {
		return result, err
	}
	result.EncodedBytes = info.Size()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return result, err
	}
	defer func() { _ = null.Close() }()
	if result.decodeTime, err = pipe(ctx, p.decode, out.Name(), null); err != nil {
		return result, err
	}
	result.rate()
	return result, nil
}

// rate computes what follows from bytes and times.
func (p *Peer) rate() {
	p.Ratio = ratio(p.rawBytes, p.EncodedBytes)
	p.EncodeMBPerS = speed(p.rawBytes, p.encodeTime)
	p.DecodeMBPerS = speed(p.rawBytes, p.decodeTime)
}

// pipe runs a command on the file input and returns how long it took.
func pipe(ctx context.Context, command []string, input string, output *os.File) (time.Duration, error) {
	in, err := os.Open(input)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	var messages bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, output, &messages
	started := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("run %s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(messages.String()))
	}
	return time.Since(started), nil
}
