package main

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/cmd/walproxy/internal/status"
)

// nodeFlags say which running node is meant.
type nodeFlags struct {
	file, http, node string
}

func (f *nodeFlags) add(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&f.file, "config", "c", "", "the node's configuration `FILE`, which holds both addresses")
	cmd.PersistentFlags().StringVar(&f.http, "http", "", "http.address of the node: host:port (`ADDR`)")
}

// config returns the node's configuration; without a file the defaults.
func (f *nodeFlags) config() (*config.Config, error) {
	if f.file == "" {
		return config.Default(), nil
	}
	return config.Load(f.file, nil)
}

// httpAddress returns where the node's HTTP side listens.
func (f *nodeFlags) httpAddress() (string, error) {
	if f.http != "" {
		return f.http, nil
	}
	c, err := f.config()
	if err != nil {
		return "", err
	}
	if c.HTTP.Address == config.Off {
		return "", &usageError{errors.New("http.address is off in " + f.file + ": this node does not tell its status")}
	}
	return string(c.HTTP.Address), nil
}

func newStatusCommand() *cobra.Command {
	var node nodeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [--config FILE | --http ADDR]",
		Short: "Show upstream, position, spool, consumers and slots of a running node",
		Long: `Asks a running node over HTTP (/status at http.address, 127.0.0.1:9187 unless told otherwise) and shows what it answers.

Lag in seconds is for how long the node has had WAL that the consumer has not flushed (or written, if it reports no flush): its
positions are sampled each second, so the figure is that coarse, and after a day about a thirtieth off. Rates are those of the
last minute. A forecast (caught up in, full in) takes the present rate for constant.`,
		Args: arguments(cobra.NoArgs),
	}
	node.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "the node's answer as it is")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		address, err := node.httpAddress()
		if err != nil {
			return err
		}
		s, err := status.Fetch(cmd.Context(), address)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), s)
		}
		return s.Write(cmd.OutOrStdout())
	}
	return cmd
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
