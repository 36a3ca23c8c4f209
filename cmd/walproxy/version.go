package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"walproxy/protocol/link"
)

// build says which build this is.
type build struct {
	Version  string // of the module; "(devel)" outside of a release
	Revision string // of the repository, with "+modified" behind it if there were changes; empty if not known
	Time     string // of the revision
}

// thisBuild reads what the toolchain recorded.
func thisBuild() build {
	b := build{Version: "(devel)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		b.Revision += "+modified"
	}
	return b
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of the program and of its formats",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			text := "walproxy " + b.Version
			if b.Revision != "" {
				text += fmt.Sprintf(" (revision %s, %s)", b.Revision, b.Time)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\nframe format %d, link %s\n%s %s/%s\n",
				text, link.Version, link.LinkVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
