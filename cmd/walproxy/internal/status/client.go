package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	clientTimeout  = 10 * time.Second
	maxAnswerBytes = 16 << 20
)

// Fetch asks the node whose HTTP side listens on address (host:port) for its status.
func Fetch(ctx context.Context, address string) (*Node, error) {
	node := new(Node)
	return node, get(ctx, address, "/status", node)
}

// FetchSlots asks for the slots alone.
func FetchSlots(ctx context.Context, address string) ([]Slot, error) {
	var slots []Slot
	return slots, get(ctx, address, "/slots", &slots)
}

func get(ctx context.Context, address, path string, into any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(address)+path, nil)
	if err != nil {
		return fmt.Errorf("ask node at %s: %w", address, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask node at %s: %w; is it running, and is http.address the right one?", address, err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("read answer of node at %s: %w", address, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("node at %s answers %s: %.200s", address, answer.Status, strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read answer of node at %s: %w", address, err)
	}
	return nil
}

// reachable replaces an address to listen on that means every interface by loopback.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
