package config

import (
	"time"

	"walproxy/protocol/walsender/authquery"
	"walproxy/recompress"
	"walproxy/recompress/zstd"
	"walproxy/slots"
)

// Default returns the configuration that an empty file stands for. It lacks what has no default: upstream.conninfo, data.dir.
func Default() *Config {
	standard := slots.DefaultPolicy()
	return &Config{
		Upstream: Upstream{
			ApplicationName: "walproxy",
			Link:            LinkAuto,
			StatusInterval:  10 * time.Second,
			ReceiverTimeout: time.Minute,
			BackoffMin:      100 * time.Millisecond,
			BackoffMax:      10 * time.Second,
		},
		Listen: Listen{
			Addresses: []Address{"127.0.0.1:5433"},
			TLS:       TLS{MinVersion: "TLSv1.2", Ciphers: Names{}, Plaintext: PlaintextLocal},
			Auth: Auth{
				Method: AuthTrust, Users: []User{}, Rules: []AuthRule{}, Maps: []Mapping{}, Replication: Names{"all"}, MaxFailures: 10,
				Query: AuthQuery{SQL: authquery.DefaultSQL, Cache: 10 * time.Second, Stale: 24 * time.Hour},
			},
			AuthenticationTimeout: time.Minute,
			WALSenderTimeout:      time.Minute,
			DrainTimeout:          10 * time.Second,
			MaxConnections:        100,
			Link:                  true,
			BaseBackup:            true,
			SQL:                   SQLRefuse,
			SQLUsers:              []SQLUser{},
		},
		Recompress:  Recompress{Codec: "auto", Level: zstd.DefaultLevel, ResetDistance: recompress.DefaultResetDistance, Hold: 5 * time.Millisecond, Backlog: 64 * MiB, Compress: "all", Except: []Relations{}},
		Spool:       Spool{Cap: 16 * GiB, WhenFull: WhenFullBlock, Keep: GiB, Seal: true, Fsync: true},
		Acknowledge: Acknowledge{Write: Rule{standard.Write}, Flush: Rule{standard.Flush}, Apply: Rule{standard.Apply}},
		Archive:     Archive{Slot: "archive", TailInterval: time.Second, TailBytes: MiB, Timeout: 30 * time.Second},
		HTTP:        HTTP{Address: "127.0.0.1:9187"},
		Log:         Log{Level: "info", Format: "auto"},
	}
}
