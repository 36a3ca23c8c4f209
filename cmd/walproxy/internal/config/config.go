// Package config is walproxy's configuration: its keys, their defaults, and the reading and checking of a file. Nothing here
// acts: a file is read, values are looked at. configs/reference.yaml explains every key.
package config

import "time"

// Config is a node's configuration. Immutable once loaded.
type Config struct {
	Upstream    Upstream    `yaml:"upstream"`
	Listen      Listen      `yaml:"listen"`
	Data        Data        `yaml:"data"`
	Recompress  Recompress  `yaml:"recompress"`
	Spool       Spool       `yaml:"spool"`
	Acknowledge Acknowledge `yaml:"acknowledge"`
	Archive     Archive     `yaml:"archive"`
	HTTP        HTTP        `yaml:"http"`
	Log         Log         `yaml:"log"`
}

// Upstream is the server, a PostgreSQL server or another node, whose WAL this node takes in.
type Upstream struct {
	Conninfo        Conninfo      `yaml:"conninfo"`
	ApplicationName string        `yaml:"application_name"`
	Slot            string        `yaml:"slot"` // empty: none
	CreateSlot      bool          `yaml:"create_slot"`
	Link            LinkMode      `yaml:"link"`
	StatusInterval  time.Duration `yaml:"status_interval"`
	ReceiverTimeout time.Duration `yaml:"receiver_timeout"`
	BackoffMin      time.Duration `yaml:"backoff_min"`
	BackoffMax      time.Duration `yaml:"backoff_max"`
}

// Listen says where consumers connect and who may.
type Listen struct {
	Addresses             []Address     `yaml:"addresses"`
	TLS                   TLS           `yaml:"tls"`
	Auth                  Auth          `yaml:"auth"`
	AuthenticationTimeout time.Duration `yaml:"authentication_timeout"`
	WALSenderTimeout      time.Duration `yaml:"wal_sender_timeout"` // 0: none
	DrainTimeout          time.Duration `yaml:"drain_timeout"`
	MaxConnections        int           `yaml:"max_connections"`
	MaxConnectionsPerUser int           `yaml:"max_connections_per_user"` // 0: no bound
	Link                  bool          `yaml:"link"`
	BaseBackup            bool          `yaml:"base_backup"`
	SQL                   SQLMode       `yaml:"sql"`
	SQLUsers              []SQLUser     `yaml:"sql_users"`
}

// SQLUser is somebody whose SQL is relayed, and where to and as whom.
type SQLUser struct {
	Name     string   `yaml:"name"`
	Conninfo Conninfo `yaml:"conninfo"`
}

// TLS says how connections are encrypted. Without CertFile they are not.
type TLS struct {
	CertFile   string     `yaml:"cert_file"`
	KeyFile    string     `yaml:"key_file"`
	CAFile     string     `yaml:"ca_file"`
	CRLFile    string     `yaml:"crl_file"`
	MinVersion TLSVersion `yaml:"min_version"`
	MaxVersion TLSVersion `yaml:"max_version"`
	Ciphers    Names      `yaml:"ciphers"`
	Plaintext  Plaintext  `yaml:"plaintext"`
}

// Auth says who may connect. Without Rules, Method is for everybody.
type Auth struct {
	Method      AuthMethod `yaml:"method"`
	Users       []User     `yaml:"users"`
	UsersFile   string     `yaml:"users_file"`
	TrustLocal  bool       `yaml:"trust_local"`
	Rules       []AuthRule `yaml:"rules"`
	Maps        []Mapping  `yaml:"maps"`
	Replication Names      `yaml:"replication"`
	MaxFailures int        `yaml:"max_failures"` // 0: no bound
	Query       AuthQuery  `yaml:"query"`
}

// AuthRule is as a line of pg_hba.conf.
type AuthRule struct {
	Type       string `yaml:"type"`
	Database   Names  `yaml:"database"`
	User       Names  `yaml:"user"`
	Address    string `yaml:"address"`
	Method     string `yaml:"method"`
	ClientCert string `yaml:"clientcert"`
	Map        string `yaml:"map"`
}

// Mapping is as a line of pg_ident.conf.
type Mapping struct {
	Map    string `yaml:"map"`
	System string `yaml:"system"`
	User   string `yaml:"user"`
}

// AuthQuery looks users up on a PostgreSQL server. Without Conninfo it does not.
type AuthQuery struct {
	Conninfo Conninfo      `yaml:"conninfo"`
	SQL      string        `yaml:"sql"`
	Cache    time.Duration `yaml:"cache"`
	Stale    time.Duration `yaml:"stale"`
}

// User is somebody who may connect.
type User struct {
	Name     string `yaml:"name"`
	Verifier Secret `yaml:"verifier"`
}

// Data is where the node keeps everything that it must not forget.
type Data struct {
	Dir string `yaml:"dir"`
}

// Recompress chooses how WAL is coded.
type Recompress struct {
	Codec           Codec         `yaml:"codec"`
	Level           int           `yaml:"level"`
	ResetDistance   Bytes         `yaml:"reset_distance"`
	Hold            time.Duration `yaml:"hold"`    // 0: nothing is held
	Backlog         Bytes         `yaml:"backlog"` // 0: never hurry
	Compress        Policy        `yaml:"compress"`
	MaxRecordBytes  Bytes         `yaml:"max_record_bytes"` // 0: none
	Except          []Relations   `yaml:"except"`
	RecordThreshold Bytes         `yaml:"record_threshold"` // 0: none
}

// Spool bounds the node's log on disk.
type Spool struct {
	Cap      Bytes    `yaml:"cap"` // 0: none
	WhenFull WhenFull `yaml:"when_full"`
	Keep     Bytes    `yaml:"keep"`
	Seal     bool     `yaml:"seal"`
	Fsync    bool     `yaml:"fsync"`
}

// Archive says where WAL is kept for long.
type Archive struct {
	Store        StoreAddress  `yaml:"store"` // empty: nowhere
	Slot         string        `yaml:"slot"`
	Tail         bool          `yaml:"tail"`
	TailInterval time.Duration `yaml:"tail_interval"`
	TailBytes    Bytes         `yaml:"tail_bytes"` // 0: only the interval counts
	Timeout      time.Duration `yaml:"timeout"`
}

// Acknowledge says what is reported to the upstream.
type Acknowledge struct {
	Write Rule `yaml:"write"`
	Flush Rule `yaml:"flush"`
	Apply Rule `yaml:"apply"`
}

// HTTP is the address of metrics, health and profiles.
type HTTP struct {
	Address Address `yaml:"address"` // "off": no HTTP
}

// Log chooses what is logged and in what form.
type Log struct {
	Level  LogLevel  `yaml:"level"`
	Format LogFormat `yaml:"format"`
}
