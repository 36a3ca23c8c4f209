package pgcluster

// Restore makes a new, stopped cluster like this one, whose data directory fill writes (it does not exist before).
func (c *Cluster) Restore(dir string, fill func(dataDir string) error) (*Cluster, error) {
	return c.derive(dir, func(clone *Cluster) error {
		if err := fill(clone.DataDir); err != nil {
			return err
		}
		return own(clone.DataDir)
	})
}
