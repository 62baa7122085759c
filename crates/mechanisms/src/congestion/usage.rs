//! Whether the window was used, so that it may grow (RFC 7661; Linux's `tcp_cwnd_validate` and
//! `tcp_is_cwnd_limited`).

/// How much of the window was used during the last window of packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowUsage {
    /// Whether the window limited the sender (`is_cwnd_limited`).
    limited: bool,
    /// The most packets outstanding at a time (`max_packets_out`).
    most: u64,
    /// The window of packets ends when this one is acknowledged (`cwnd_usage_seq`).
    end: u64,
}

impl WindowUsage {
    /// The sender has sent what it may: `first` is the lowest packet not acknowledged, `next` the
    /// next new one; `limited`: the window stopped it, or is full.
    pub fn on_sent(&mut self, first: u64, next: u64, limited: bool) {
        let outstanding = next - first;
        if first >= self.end || limited || (!self.limited && outstanding > self.most) {
            *self = Self { limited, most: outstanding, end: next };
        }
    }

    /// Whether the window of `window` packets may grow: if it limited the sender, and in slow start
    /// also up to twice what was outstanding.
    pub fn may_grow(&self, window: f64, in_slow_start: bool) -> bool {
        self.limited || (in_slow_start && window < 2.0 * self.most as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_limited_the_sender_may_grow_until_its_packets_are_acknowledged() {
        let mut usage = WindowUsage::default();
        usage.on_sent(0, 10, true);
        usage.on_sent(3, 10, false);
        assert!(usage.may_grow(10.0, false));
        usage.on_sent(10, 12, false);
        assert!(!usage.may_grow(10.0, false));
    }

    #[test]
    fn in_slow_start_the_window_grows_up_to_twice_what_was_outstanding() {
        let mut usage = WindowUsage::default();
        usage.on_sent(0, 6, false);
        assert!(usage.may_grow(11.0, true));
        assert!(!usage.may_grow(12.0, true));
        assert!(!usage.may_grow(11.0, false));
    }
}
