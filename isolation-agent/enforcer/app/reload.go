package app

import (
	"context"
	"fmt"

	"vigia/internal/config"
	"vigia/internal/secret"
)

// Reload takes up what is live of the configuration: token, contracts and their file, links, site and
// keys of the fast loop, users of the socket.
func (s *service) Reload(_ context.Context, path string) error {
	c, err := load(path)
	if err != nil {
		return err
	}
	if err := config.Unchanged("vigia-enforcer", s.config.fixed(), c.fixed()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	takeUpContracts, err := s.bought.prepare(c)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	token, err := secret.ReadToken(c.TokenFile)
	if err != nil {
		return fmt.Errorf("token_file %s %w", c.TokenFile, err)
	}
	if s.loop != nil {
		if err := s.site.reload(c.FastLoop); err != nil {
			return fmt.Errorf("%s: fast_loop: %w", path, err)
		}
	}
	// From here on nothing fails.
	if c.APISocket != nil {
		s.api.SetSocketUsers(c.APISocket.UIDs)
	}
	s.api.SetToken(token)
	takeUpContracts()
	s.config = c
	return nil
}
