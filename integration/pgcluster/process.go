package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Process is a child process that was started and is waited for. Its output goes to a file.
// All methods are safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed by the goroutine that waits for the process, after it has set err
	err  error
}

// StartProcess starts cmd with standard output and standard error appended to the file logPath. The child gets death as
// its signal for our own end, so that nothing is left behind when a test run is killed.
//
// It starts one goroutine, which ends with the process; Wait, Stop and Kill return after it has ended.
func StartProcess(cmd *exec.Cmd, logPath string, death syscall.Signal) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = death
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	p := &Process{cmd: cmd, log: logPath, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Running tells whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends sig. A process that has ended already is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", filepath.Base(p.cmd.Path), err)
	}
	return nil
}

// Wait returns when the process has ended: nil for exit code 0, *exec.ExitError for another end, or ctx's cause if ctx
// ends first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", filepath.Base(p.cmd.Path), context.Cause(ctx))
	}
}

// Stop sends sig and waits for the end as Wait does.
func (p *Process) Stop(ctx context.Context, sig syscall.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	return p.Wait(ctx)
}

// Kill ends the process with SIGKILL, also while it is stopped by SIGSTOP, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Log returns the last bytes of the output, at most limit.
func (p *Process) Log(limit int64) string { return tail(p.log, limit) }

func tail(path string, limit int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	start := max(0, info.Size()-limit)
	text := make([]byte, info.Size()-start)
	n, _ := file.ReadAt(text, start)
	return string(text[:n])
}
