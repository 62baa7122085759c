//! Reservations for QoS: RSVP messages, the soft-state machine, admission and enforcement.
