package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Write prints the status for people.
func (n *Node) Write(w io.Writer) error {
	var b strings.Builder
	u, s := n.Upstream, n.Spool
	fmt.Fprintf(&b, "walproxy %s, cluster %s, PostgreSQL %s\n\n", n.Version, orDash(n.Cluster.SystemID), orDash(n.Cluster.ServerVersion))
	upstream := u.State
	if u.Peer != "" {
		upstream += " from " + u.Peer
	}
	if u.Link {
		upstream += ", compressed"
	}
	fmt.Fprintf(&b, "upstream   %s, for %s\n", upstream, duration(n.Time.Sub(u.Since).Seconds()))
	if u.LastError != "" {
		fmt.Fprintf(&b, "           last error: %s\n", u.LastError)
	}
	fmt.Fprintf(&b, "           at %s, %s behind; reported write %s, flush %s, apply %s\n", u.End, size(float64(u.LagBytes)), u.Write, u.Flush, u.Apply)
	if u.Slot != "" {
		fmt.Fprintf(&b, "           slot %s keeps %s there\n", u.Slot, size(float64(u.RetainedBytes)))
	}
	fmt.Fprintf(&b, "position   timeline %d, %s written, %s flushed, %s/s; oldest is %s\n", n.Position.Timeline, n.Position.Written,
		n.Position.Flushed, size(n.Position.Rate), n.Position.Oldest)
	b.WriteString("spool      " + s.describe() + "\n")
	if s.HeldBy != "" {
		fmt.Fprintf(&b, "           held back most by %s\n", s.HeldBy)
	}
	fmt.Fprintf(&b, "\nconsumers: %d\n", len(n.Consumers))
	rows := [][]string{{"NAME", "PEER", "SLOT", "STATE", "SENT", "FLUSH", "LAG", "SECONDS", "CATCH-UP", "CAUGHT UP IN"}}
	for _, c := range n.Consumers {
		catchUp := "-" // without a lag there is nothing that shrinks or grows
		if c.LagBytes > 0 {
			catchUp = size(c.CatchUp) + "/s"
		}
		rows = append(rows, []string{orDash(c.Name), c.Peer, orDash(c.Slot), c.State, c.Sent.String(), c.Flush.String(),
			size(float64(c.LagBytes)), fmt.Sprintf("%.1f", c.LagSeconds), catchUp, forecast(c.SecondsCaughtUp)})
	}
	if err := table(&b, rows); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nslots: %d\n", len(n.Slots))
	if err := WriteSlots(&b, n.Slots); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Spool) describe() string {
	text := size(float64(s.Bytes))
	if s.CapBytes == 0 {
		return text + ", no cap"
	}
	text += fmt.Sprintf(" of %s (%.0f %%)", size(float64(s.CapBytes)), 100*s.Fill)
	switch {
	case s.Blocked:
		text += ", FULL: the upstream is not read"
	case s.Alarm:
		text += ", NEARLY FULL"
	}
	if s.SecondsCap != nil {
		text += ", full in " + duration(*s.SecondsCap) + " at the present rate"
	}
	return text
}

// WriteSlots prints slots for people.
func WriteSlots(w io.Writer, slots []Slot) error {
	rows := [][]string{{"SLOT", "ACTIVE", "CONSUMER", "WAL", "RESTART_LSN", "RETAINED_FROM", "KEPT HERE", "KEPT UPSTREAM", "WHY"}}
	for _, s := range slots {
		active := "no"
		if s.Active {
			active = fmt.Sprintf("pid %d", s.PID)
		}
		rows = append(rows, []string{s.Name, active, orDash(s.Consumer), s.Status, s.RestartLSN.String(), s.RetainedFrom.String(),
			size(float64(s.RetainedBytes)), size(float64(s.RetainedUpstreamBytes)), s.Reason})
	}
	return table(w, rows)
}

// table prints rows in columns, the first row being the head; nothing if there is only that.
func table(w io.Writer, rows [][]string) error {
	if len(rows) == 1 {
		return nil
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
		if _, err := fmt.Fprintln(out, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return out.Flush()
}

// printable takes control characters out of what clients may choose.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// size prints bytes with a unit.
func size(bytes float64) string {
	sign := ""
	if bytes < 0 {
		sign, bytes = "-", -bytes
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			if unit == "B" {
				return fmt.Sprintf("%s%.0f %s", sign, bytes, unit)
			}
			return fmt.Sprintf("%s%.1f %s", sign, bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%s%.1f TiB", sign, bytes)
}

func forecast(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return duration(*seconds)
}

// maxForecast bounds what is told as a duration.
const maxForecast = 100 * 365 * 24 * 3600

func duration(seconds float64) string {
	if seconds > maxForecast {
		return "100 years"
	}
	return max(0, time.Duration(seconds*float64(time.Second))).Round(time.Second).String()
}
