package main

import (
	"errors"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/cmd/walproxy/internal/inspect"
)

// Exit codes of every command. `walproxy help` shows them.
const (
	exitOK      = 0
	exitFailure = 1 // what was asked for could not be done
	exitUsage   = 2 // wrong command line or configuration; trying again does not help
	exitDamage  = 3 // inspect: something is damaged
)

const exitCodeHelp = `Exit codes:
  0  done
  1  failed
  2  wrong command line or configuration: trying again does not help
  3  inspect found damage`

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() + "; see walproxy help" }

func (e *usageError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var usage *usageError
	var configuration *config.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage) || errors.As(err, &configuration):
		return exitUsage
	case errors.Is(err, inspect.ErrDamaged):
		return exitDamage
	}
	return exitFailure
}
