package main

import (
	"errors"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/cmd/walproxy/internal/inspect"
	"walproxy/cmd/walproxy/internal/verify"
	"walproxy/protocol/link"
	"walproxy/protocol/walreceiver"
	"walproxy/slots"
	"walproxy/slots/spool"
	"walproxy/slots/statefile"
)

// Exit codes of every command. `walproxy help` shows them.
const (
	exitOK      = 0
	exitFailure = 1   // what was asked for could not be done
	exitUsage   = 2   // wrong command line or configuration; trying again does not help
	exitDamage  = 3   // inspect, verify, archive verify: something is damaged, missing, or differs
	exitData    = 4   // run: the data directory is damaged, or holds other WAL than the upstream has; trying again does not help
	exitLook    = 200 // archive get: the archive could not be asked; above 125, so that recovery stops
)

const exitCodeHelp = `Exit codes:
  0  done
  1  failed
  2  wrong command line or configuration: trying again does not help
  3  inspect, verify or archive verify found damage, WAL that differs, or WAL that is missing
  4  the data directory is damaged or of a newer walproxy, or the upstream is another cluster or has diverged: trying
     again does not help
  200  archive get: the archive could not be asked; 1 only if it has no such file`

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() + "; see walproxy help" }

func (e *usageError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var usage *usageError
	var configuration *config.Error
	var look *lookError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &look):
		return exitLook
	case errors.As(err, &usage) || errors.As(err, &configuration):
		return exitUsage
	case errors.Is(err, inspect.ErrDamaged) || errors.Is(err, verify.ErrDiffers) || errors.Is(err, verify.ErrDamaged) || errors.Is(err, errArchiveDamaged):
		return exitDamage
	case needsHand(err):
		return exitData
	}
	return exitFailure
}

// needsHand reports whether an error of a node stays until somebody has looked at the data directory or at the upstream.
func needsHand(err error) bool {
	var cluster *spool.IdentityError
	var diverged *walreceiver.DivergedError
	var slotFile *slots.CorruptError
	var newer *link.VersionError
	var newerState *statefile.VersionError
	return errors.As(err, &cluster) || errors.As(err, &diverged) || errors.Is(err, spool.ErrHistoryDiffers) ||
		errors.Is(err, link.ErrCorrupt) || errors.As(err, &slotFile) || errors.Is(err, statefile.ErrCorrupt) ||
		errors.As(err, &newer) || errors.As(err, &newerState)
}
