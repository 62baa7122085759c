use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{Duration, math};

/// A stream of random numbers for one purpose, which its name states.
///
/// Seed and name alone determine the numbers: two streams of one run are independent,
/// and a new stream does not change the others. PCG (O'Neill, 2014) with 128 bits of
/// state, 16 bytes in memory.
#[derive(Clone, Debug)]
pub struct RandomStream {
    generator: Pcg64Mcg,
}

impl RandomStream {
    /// The stream `name` (for example `"flow 7 early response"`) of the run with `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        let mut state = [0u8; 16];
        state[..8].copy_from_slice(&hash(seed, name, 0x9e37_79b9_7f4a_7c15).to_le_bytes());
        state[8..].copy_from_slice(&hash(seed, name, 0xc2b2_ae3d_27d4_eb4f).to_le_bytes());
        Self { generator: Pcg64Mcg::from_seed(state) }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A number in `[0, 1)`, with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number in `[low, high)`.
    pub fn uniform_between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// True with the given probability; 0 and 1 are certain.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// An exponentially distributed number of the given mean, by inversion.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * math::ln(1.0 - self.uniform())
    }

    /// A Pareto distributed number: at least `scale`, tail exponent `shape`, by inversion.
    /// Its mean is `scale * shape / (shape - 1)` if `shape > 1`.
    pub fn pareto(&mut self, scale: f64, shape: f64) -> f64 {
        scale / math::pow(1.0 - self.uniform(), 1.0 / shape)
    }

    /// A log-normally distributed number; `mu` and `sigma` are the mean and deviation of
    /// its logarithm (Box and Muller, 1958; one of the pair is discarded, so that a
    /// stream has no state beyond its generator's).
    pub fn log_normal(&mut self, mu: f64, sigma: f64) -> f64 {
        let radius = math::sqrt(-2.0 * math::ln(1.0 - self.uniform()));
        let angle = core::f64::consts::TAU * self.uniform();
        math::exp(mu + sigma * radius * libm::cos(angle))
    }

    /// A duration between `low` and `high`, uniformly distributed.
    pub fn duration_between(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_secs_f64(self.uniform_between(low.as_secs_f64(), high.as_secs_f64()))
    }
}

/// FNV-1a over the name, finished by the mixer of SplitMix64: stable across versions, unlike the
/// standard library's hasher.
fn hash(seed: u64, name: &str, salt: u64) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325 ^ salt;
    for byte in seed.to_le_bytes().into_iter().chain(name.bytes()) {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_name_alone() {
        let draw = |seed, name| RandomStream::new(seed, name).next_u64();
        assert_eq!(draw(1, "loss"), draw(1, "loss"));
        assert_ne!(draw(1, "loss"), draw(2, "loss"));
        assert_ne!(draw(1, "loss"), draw(1, "delay"));
    }

    #[test]
    fn the_first_numbers_are_pinned_so_that_an_upgrade_cannot_change_results_unseen() {
        let mut stream = RandomStream::new(1, "pinned");
        let first: Vec<u64> = (0..3).map(|_| stream.next_u64()).collect();
        assert_eq!(first, PINNED);
    }

    const PINNED: [u64; 3] = [16070240736735349854, 4758093963102747691, 7265888649314111095];

    #[test]
    fn laws_have_the_means_they_are_named_for() {
        let mut stream = RandomStream::new(7, "means");
        let mut mean = |draw: fn(&mut RandomStream) -> f64| {
            (0..200_000).map(|_| draw(&mut stream)).sum::<f64>() / 200_000.0
        };
        assert!((mean(|s| s.uniform()) - 0.5).abs() < 0.005);
        assert!((mean(|s| s.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!((mean(|s| s.pareto(1.0, 3.0)) - 1.5).abs() < 0.02);
        assert!((mean(|s| s.log_normal(0.0, 0.5)) - math::exp(0.125)).abs() < 0.02);
    }
}
