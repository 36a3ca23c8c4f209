package config

import (
	"fmt"
	"io"
	"os"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 1 << 20

// Load reads a file, lets override change the values, and checks the result. An empty path stands for an empty file, a nil
// override for none.
//
// Errors: *Error with every problem of the configuration; others if the file cannot be read.
func Load(path string, override func(*Config)) (*Config, error) {
	var content []byte
	if path != "" {
		var err error
		if content, err = readFile(path); err != nil {
			return nil, err
		}
	}
	return Parse(path, content, override)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("read configuration %s: larger than %d bytes", path, maxFileBytes)
	}
	return content, nil
}

// Parse is Load with the content of the file, whose name is for errors.
func Parse(file string, content []byte, override func(*Config)) (*Config, error) {
	c, p := Default(), problems{lines: make(map[string]int)}
	decode(content, c, &p)
	if override != nil {
		override(c)
	}
	c.check(&p)
	if err := p.err(file); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate reports all problems together, as *Error. It only reads.
func (c *Config) Validate() error {
	var p problems
	c.check(&p)
	return p.err("")
}
