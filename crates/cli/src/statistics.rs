//! Means over runs with different seeds, with their confidence intervals.

use serde::Serialize;

/// A mean over runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Mean {
    /// In the unit of the values.
    pub(crate) mean: f64,
    /// Half the width of the 95 % confidence interval of the mean (Student's t); absent with a
    /// single value.
    pub(crate) ci95: Option<f64>,
    /// Number of runs that have the value.
    pub(crate) runs: usize,
}

impl Mean {
    /// The mean of `values`; `None` if there are none.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let runs = values.len();
        if runs == 0 {
            return None;
        }
        let count = runs as f64;
        let mean = values.iter().sum::<f64>() / count;
        let ci95 = (runs > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            student_t(runs - 1) * (squares / (count - 1.0) / count).sqrt()
        });
        Some(Self { mean, ci95, runs })
    }
}

/// The 97.5 % quantile of Student's t with so many degrees of freedom, within 0.001 (Abramowitz
/// and Stegun, 1964, table 26.10 and formula 26.7.5).
fn student_t(degrees: usize) -> f64 {
    const FIRST: [f64; 5] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706];
    if let Some(known) = degrees.checked_sub(1).and_then(|place| FIRST.get(place)) {
        return *known;
    }
    let normal = 1.959_964_f64;
    let power = |exponent| normal.powi(exponent);
    let n = degrees as f64;
    normal
        + (power(3) + normal) / (4.0 * n)
        + (5.0 * power(5) + 16.0 * power(3) + 3.0 * normal) / (96.0 * n.powi(2))
        + (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * normal) / (384.0 * n.powi(3))
        + (79.0 * power(9) + 776.0 * power(7) + 1482.0 * power(5)
            - 1920.0 * power(3)
            - 945.0 * normal)
            / (92_160.0 * n.powi(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, published) in
            [(1, 12.706), (5, 2.571), (6, 2.447), (9, 2.262), (30, 2.042), (120, 1.980)]
        {
            assert!((student_t(degrees) - published).abs() < 1e-3, "{degrees}");
        }
    }

    #[test]
    fn the_interval_of_a_mean_is_students() {
        let mean = Mean::of([1.0, 2.0, 3.0, 4.0].into_iter()).unwrap();
        assert_eq!((mean.mean, mean.runs), (2.5, 4));
        assert!((mean.ci95.unwrap() - 3.1824 * (5.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-9);
        assert_eq!(Mean::of([7.0].into_iter()).unwrap().ci95, None);
        assert_eq!(Mean::of(std::iter::empty()), None);
    }
}
