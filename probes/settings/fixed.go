package settings

// Fixed is what stays as it is while the program runs (config.Unchanged). The tags
// name the keys.
type Fixed struct {
	// BulkState is the file that remembers what bulk tests have sent over a restart;
	// empty for none.
	BulkState string `yaml:"bulk.state"`
	// ObjectivesState does so for the objectives that were learned.
	ObjectivesState string `yaml:"objectives_state"`
	// MomentsState does so for the records of bad moments.
	MomentsState string `yaml:"moments.state"`
}
