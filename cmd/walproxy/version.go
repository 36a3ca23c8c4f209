package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"walproxy/protocol/link"
)

// Set by `make build` with -ldflags -X; empty in a plain go build, for which the toolchain's record counts.
var (
	version      string // git describe: the last release, and what came after it
	revision     string // of the repository, with "+modified" behind it if there were changes
	revisionTime string // of the commit
)

// build says which build this is.
type build struct {
	Version  string // of the module or of the repository; "(devel)" if neither is known
	Revision string // of the repository, with "+modified" behind it if there were changes; empty if not known
	Time     string // of the revision
}

// thisBuild returns what make said, and otherwise what the toolchain recorded: it knows nothing of the repository where the
// files are a worktree of it.
func thisBuild() build {
	b := build{Version: "(devel)"}
	if info, ok := debug.ReadBuildInfo(); ok {
		b = recorded(info)
	}
	if version != "" {
		b.Version = version
	}
	if revision != "" {
		b.Revision, b.Time = revision, revisionTime
	}
	return b
}

func recorded(info *debug.BuildInfo) build {
	b := build{Version: "(devel)"}
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
