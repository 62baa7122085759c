//! Which packets of a flow have arrived.

/// A set of packet numbers, one bit for each up to the highest.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    words: Vec<u64>,
}

impl Arrivals {
    /// Adds a packet; false if it is there already, so that this one is a copy.
    pub fn add(&mut self, number: u64) -> bool {
        let (word, bit) = place(number);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Whether the packet has arrived.
    pub fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }
}

fn place(number: u64) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_not_new_in_whatever_order_packets_arrive() {
        let mut arrivals = Arrivals::default();
        let numbers = [0, 63, 64, 3, 200, 64, 0, 1];
        let new = numbers.map(|number| arrivals.add(number));
        assert_eq!(new, [true, true, true, true, true, false, false, true]);
        assert!(arrivals.contains(200) && !arrivals.contains(199) && !arrivals.contains(100_000));
    }
}
