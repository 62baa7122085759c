//! Fewer points that look the same, and order statistics.

/// A point of a line: seconds, value.
pub(crate) type Point = (f64, f64);

/// A row of a band: seconds; low, middle and high value.
pub(crate) type BandRow = [f64; 4];

/// `points`, in order of time, reduced to the smallest and the largest value of each of `buckets`
/// equal intervals; as they are if they are no more than that would leave.
pub(crate) fn extremes(points: &[Point], buckets: usize) -> Vec<Point> {
    if points.len() <= 2 * buckets {
        return points.to_vec();
    }
    let mut reduced = Vec::with_capacity(2 * buckets + 2);
    for bucket in intervals(points, buckets, |point| point.0) {
        let by_value = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
        let (low, high) = (bucket.iter().min_by(by_value), bucket.iter().max_by(by_value));
        let (Some(low), Some(high)) = (low, high) else { continue };
        let (first, last) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        reduced.push(*first);
        if first != last {
            reduced.push(*last);
        }
    }
    // The ends of a line are seen.
    if let (Some(end), Some(reached)) = (points.last(), reduced.last())
        && end.0 > reached.0
    {
        reduced.push(*end);
    }
    reduced
}

/// The rows of a band, reduced to one for each of `buckets` equal intervals: the smallest low, the
/// mean of the middles, the largest high.
pub(crate) fn bands(rows: &[BandRow], buckets: usize) -> Vec<BandRow> {
    if rows.len() <= buckets {
        return rows.to_vec();
    }
    let reduced = intervals(rows, buckets, |row| row[0]).map(|bucket| {
        let count = bucket.len() as f64;
        let mean = |place: usize| bucket.iter().map(|row| row[place]).sum::<f64>() / count;
        let low = bucket.iter().map(|row| row[1]).fold(f64::INFINITY, f64::min);
        let high = bucket.iter().map(|row| row[3]).fold(f64::NEG_INFINITY, f64::max);
        [mean(0), low, mean(2), high]
    });
    reduced.collect()
}

/// `spans` (from, to), in order of time, those of each of `buckets` equal intervals joined; as they
/// are if they are no more.
pub(crate) fn joined(spans: &[Point], buckets: usize) -> Vec<Point> {
    if spans.len() <= buckets {
        return spans.to_vec();
    }
    let join = |bucket: &[Point]| {
        let end = bucket.iter().map(|span| span.1).fold(f64::NEG_INFINITY, f64::max);
        (bucket[0].0, end)
    };
    intervals(spans, buckets, |span| span.0).map(join).collect()
}

/// The slices of `rows` within each of `count` equal intervals of time that is not empty.
pub(crate) fn intervals<T>(
    rows: &[T],
    count: usize,
    time: impl Fn(&T) -> f64 + Copy,
) -> impl Iterator<Item = &[T]> {
    let begin = rows.first().map_or(0.0, time);
    let end = rows.last().map_or(0.0, time);
    let width = (end - begin) / count.max(1) as f64;
    let place = move |row: &T| if width > 0.0 { ((time(row) - begin) / width) as usize } else { 0 };
    let place = move |row: &T| place(row).min(count.saturating_sub(1));
    rows.chunk_by(move |a, b| place(a) == place(b))
}

/// The value at `share` (0 to 1) of `sorted` by the nearest rank; `None` if there is none.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied()
}

/// Values and the share of `sorted` above each, for shares from 1 down to that of one value: at
/// most some 200 points, the same number for each factor of ten.
pub(crate) fn tail(sorted: &[f64]) -> Vec<Point> {
    const PER_DECADE: f64 = 40.0;
    let count = sorted.len() as f64;
    let mut points: Vec<Point> = Vec::new();
    let mut step = 0.0;
    loop {
        let above = 10f64.powf(-step / PER_DECADE);
        if above * count < 1.0 || sorted.is_empty() {
            return points;
        }
        let beyond = (above * count).round() as usize;
        let value = sorted[sorted.len() - beyond.clamp(1, sorted.len())];
        // The curve falls: of equal values the last one counts.
        if points.last().is_some_and(|last| last.0 >= value) {
            points.pop();
        }
        points.push((value, above));
        step += 1.0;
    }
}

/// Values and the share of `all` that is no larger, at most some 400 points; `sorted` has those of
/// `all` that have a value.
pub(crate) fn within(sorted: &[f64], all: u64) -> Vec<Point> {
    const STEPS: usize = 400;
    let mut points: Vec<Point> = Vec::new();
    for step in 0..=STEPS.min(sorted.len()) {
        let Some(value) = quantile(sorted, step as f64 / STEPS.min(sorted.len()) as f64) else {
            break;
        };
        let share = sorted.partition_point(|one| *one <= value) as f64 / all.max(1) as f64;
        if points.last().is_none_or(|last| last.0 < value) {
            points.push((value, share));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize) -> Vec<Point> {
        (0..count).map(|n| (n as f64, ((n * 7919) % 1009) as f64)).collect()
    }

    #[test]
    fn the_extremes_of_each_interval_and_both_ends_stay() {
        let points = wave(100_000);
        let reduced = extremes(&points, 500);
        assert!(reduced.len() <= 1_001 && reduced.len() > 500, "{}", reduced.len());
        assert!(reduced.is_sorted_by(|a, b| a.0 < b.0));
        let ends = |line: &[Point]| (line[0].0 < 200.0, line[line.len() - 1].0);
        assert_eq!(ends(&reduced), (true, 99_999.0));
        for bucket in points.chunks(200) {
            let inside = |point: &&Point| point.0 >= bucket[0].0 && point.0 <= bucket[199].0;
            let high =
                |line: &mut dyn Iterator<Item = &Point>| line.map(|p| p.1).fold(0.0, f64::max);
            let kept = high(&mut reduced.iter().filter(inside));
            // Intervals and chunks of 200 differ by one point at most.
            assert!(kept >= high(&mut bucket[1..199].iter()), "{kept}");
        }
    }

    #[test]
    fn few_points_stay_as_they_are_and_equal_times_are_one_interval() {
        let points = wave(50);
        assert_eq!(extremes(&points, 25), points);
        let same = [(1.0, 2.0), (1.0, 5.0), (1.0, 3.0)];
        assert_eq!(extremes(&same, 1), [(1.0, 2.0), (1.0, 5.0)]);
        assert_eq!(extremes(&[], 10), []);
    }

    #[test]
    fn a_band_has_the_outer_values_and_the_mean_of_the_middles() {
        let rows: Vec<BandRow> =
            (0..100).map(|n| [n as f64, -f64::from(n), 1.0, f64::from(n)]).collect();
        let reduced = bands(&rows, 10);
        assert_eq!(reduced.len(), 10);
        assert_eq!(reduced[9][1..], [-99.0, 1.0, 99.0]);
    }

    #[test]
    fn the_share_within_a_value_rises_to_that_of_those_that_have_one() {
        let sorted: Vec<f64> = (1..=5_000).map(f64::from).collect();
        let points = within(&sorted, 10_000);
        assert!(points.len() <= 401 && points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        assert_eq!((points[0], points[points.len() - 1]), ((1.0, 0.000_1), (5_000.0, 0.5)));
        assert_eq!(within(&[2.0, 2.0], 4), [(2.0, 0.5)]);
        assert!(within(&[], 3).is_empty());
    }

    #[test]
    fn spans_of_an_interval_are_joined_if_there_are_too_many() {
        let spans: Vec<Point> = (0..100).map(|n| (f64::from(n), f64::from(n) + 0.5)).collect();
        assert_eq!(joined(&spans, 100), spans);
        let joined = joined(&spans, 10);
        assert_eq!((joined.len(), joined[0], joined[9].1), (10, (0.0, 9.5), 99.5));
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        let at = |share| quantile(&sorted, share);
        assert_eq!([at(0.5), at(0.95), at(0.99), at(1.0)], [50.0, 95.0, 99.0, 100.0].map(Some));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0], 0.0), Some(3.0));
    }

    #[test]
    fn the_tail_falls_from_all_values_to_one() {
        let sorted: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = tail(&sorted);
        assert_eq!(points[0], (0.0, 1.0));
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1), "{points:?}");
        assert!(points.len() < 200 && points[points.len() - 1].0 == 9_999.0, "{points:?}");
        assert!(tail(&[]).is_empty());
    }
}
