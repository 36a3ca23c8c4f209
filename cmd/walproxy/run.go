package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"walproxy/cmd/walproxy/internal/config"
)

// runFlags are what can be said without a file. What is given overrides the file.
type runFlags struct {
	file, upstream, data, http string
	listen                     []string
}

func newRunCommand() *cobra.Command { return newRunCommandWith(new(runFlags)) }

func newRunCommandWith(flags *runFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [--config FILE] [flags]",
		Short: "Run a node",
		Long: `Runs a node until SIGTERM or SIGINT, which let consumers confirm what they were sent; a second one ends it at once. SIGHUP
has it read the configuration again: users, certificates and the log's level are taken over, other keys need a restart.
For a first try without a file: walproxy run --upstream CONNINFO --listen ADDR --data DIR.
configs/reference.yaml explains every key of a configuration file.`,
		Example: `  walproxy run --config /etc/walproxy/walproxy.yaml
  walproxy run --upstream 'host=primary user=replicator' --listen 127.0.0.1:5433 --data /tmp/walproxy`,
		Args: arguments(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVarP(&flags.file, "config", "c", "", "configuration `FILE`")
	f.StringVar(&flags.upstream, "upstream", "", "upstream.conninfo: libpq connection string or URI (`CONNINFO`)")
	f.StringArrayVar(&flags.listen, "listen", nil, "listen.addresses: host:port or unix:/path, may be repeated (`ADDR`)")
	f.StringVar(&flags.data, "data", "", "data.dir: directory (`DIR`) for everything that must survive a restart")
	f.StringVar(&flags.http, "http", "", "http.address: host:port of metrics and health, or off (`ADDR`)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.load(cmd)
		if err != nil {
			return err
		}
		return start(cmd, c, func() (*config.Config, error) { return flags.load(cmd) })
	}
	return cmd
}

// start runs the node that c describes. load reads the configuration again.
func start(cmd *cobra.Command, c *config.Config, load func() (*config.Config, error)) error {
	logger, level := newLogger(c.Log, cmd.ErrOrStderr())
	defer func() { _ = logger.Sync() }() // stderr need not support it
	if !c.HTTP.Address.Local() {
		logger.Warn("http.address can be reached from elsewhere and asks for no password", zap.String("address", string(c.HTTP.Address)))
	}
	logger.Info("starting", zap.String("version", thisBuild().Version), zap.Stringer("upstream", c.Upstream.Conninfo), zap.String("data", c.Data.Dir))
	r := &reloader{load: load, current: c, level: level, logger: logger}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	return runNode(cmd.Context(), c, logger, r, hangups)
}

// load reads the file and what was given on the command line.
func (f *runFlags) load(cmd *cobra.Command) (*config.Config, error) {
	return config.Load(f.file, func(c *config.Config) { f.apply(cmd, c) })
}

// apply sets what was given on the command line.
func (f *runFlags) apply(cmd *cobra.Command, c *config.Config) {
	given := cmd.Flags().Changed
	if given("upstream") {
		c.Upstream.Conninfo = config.Conninfo(f.upstream)
	}
	if given("listen") {
		c.Listen.Addresses = nil
		for _, a := range f.listen {
			c.Listen.Addresses = append(c.Listen.Addresses, config.Address(a))
		}
	}
	if given("data") {
		c.Data.Dir = f.data
	}
	if given("http") {
		c.HTTP.Address = config.Address(f.http)
	}
}
