package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/cmd/walproxy/internal/status"
	"walproxy/protocol"
)

func newSlotsCommand() *cobra.Command {
	var node nodeFlags
	cmd := &cobra.Command{
		Use:   "slots",
		Short: "List, create and drop replication slots of a running node",
		Long: `Slots are listed over HTTP, which reads only. They are created and dropped by the replication protocol, at the address where
consumers connect: there the node knows who asks, while HTTP asks for no password.`,
		Args: arguments(cobra.NoArgs),
		RunE: needsCommand,
	}
	node.add(cmd)
	cmd.PersistentFlags().StringVar(&node.node, "node", "", "how to connect to the node as a consumer does: libpq connection string or URI (`CONNINFO`)")
	cmd.AddCommand(newSlotsListCommand(&node), newSlotsCreateCommand(&node), newSlotsDropCommand(&node))
	return cmd
}

func newSlotsListCommand(node *nodeFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show each slot, its consumer, and how much WAL is kept for it and why",
		Long: `Shows for each slot who streams by it, its restart_lsn, from where WAL is kept for it (the start of the segment or the reset
boundary below restart_lsn, whichever is lower), how much WAL that is here and how much of it the upstream keeps too for this
node's slot there, and the reason in words. WAL is reserved (all there), unreserved (no restart_lsn yet), lost (some of it is
gone), or the slot is invalidated.`,
		Args: arguments(cobra.NoArgs),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the node's answer as it is")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		address, err := node.httpAddress()
		if err != nil {
			return err
		}
		slots, err := status.FetchSlots(cmd.Context(), address)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), slots)
		}
		return status.WriteSlots(cmd.OutOrStdout(), slots)
	}
	return cmd
}

func newSlotsCreateCommand(node *nodeFlags) *cobra.Command {
	var reserve bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a slot",
		Args:  arguments(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&reserve, "reserve-wal", true, "keep WAL from now on (from the last checkpoint), not only from the consumer's first report on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options := ""
		if reserve {
			options = " RESERVE_WAL"
		}
		return node.execute(cmd.Context(), args[0], "CREATE_REPLICATION_SLOT %s PHYSICAL"+options)
	}
	return cmd
}

func newSlotsDropCommand(node *nodeFlags) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a slot that nobody streams by",
		Args:  arguments(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until its consumer has gone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options := ""
		if wait {
			options = " WAIT"
		}
		return node.execute(cmd.Context(), args[0], "DROP_REPLICATION_SLOT %s"+options)
	}
	return cmd
}

// slotTimeout bounds what is asked of a node, waiting for the end of a consumer apart.
const slotTimeout = 30 * time.Second

// execute sends a replication command about a slot to the node.
func (f *nodeFlags) execute(ctx context.Context, slot, command string) (err error) {
	if err := protocol.CheckSlotName(slot); err != nil {
		return &usageError{err}
	}
	conninfo, err := f.conninfo()
	if err != nil {
		return err
	}
	settings, err := pgconn.ParseConfig(conninfo)
	if err != nil {
		return &usageError{err}
	}
	settings.RuntimeParams["replication"] = "true"
	settings.RuntimeParams["application_name"] = "walproxy slots"
	connecting, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	conn, err := pgconn.ConnectConfig(connecting, settings)
	if err != nil {
		return fmt.Errorf("connect to the node: %w\nis it running, and does --node or listen.addresses lead to it?", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	_, err = conn.Exec(ctx, fmt.Sprintf(command, `"`+slot+`"`)).ReadAll()
	if err != nil {
		return fmt.Errorf("slot %s: %w", slot, err)
	}
	return nil
}

// conninfo returns how to connect to the node: as told, or to its first address.
func (f *nodeFlags) conninfo() (string, error) {
	if f.node != "" {
		return f.node, nil
	}
	c, err := f.config()
	if err != nil {
		return "", err
	}
	return listenConninfo(c.Listen.Addresses[0])
}

// listenConninfo turns an address to listen on into one to connect to. What it leaves open, as user and password, comes from
// the PG* environment variables and .pgpass.
func listenConninfo(a config.Address) (string, error) {
	network, address := a.Network()
	host, port := "", ""
	if network == "unix" {
		name := filepath.Base(address)
		host, port = filepath.Dir(address), strings.TrimPrefix(name, ".s.PGSQL.")
		if port == name {
			return "", &usageError{fmt.Errorf("%s does not end in .s.PGSQL.PORT; say --node", a)}
		}
	} else {
		var err error
		if host, port, err = net.SplitHostPort(address); err != nil {
			return "", &usageError{err}
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
	}
	conninfo := fmt.Sprintf("host='%s' port=%s", strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(host), port)
	if os.Getenv("PGUSER") == "" {
		conninfo += " user=postgres"
	}
	return conninfo, nil
}
