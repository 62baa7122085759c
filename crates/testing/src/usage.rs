//! What a process uses, for benchmarks.

use std::fs;

/// Seconds of the processor that a process has used, and its memory in MB. `process` is its id, or `self`.
///
/// # Panics
/// If it does not run, or `/proc` has another form.
#[must_use]
pub fn used(process: &str) -> (f64, f64) {
    let read = |what: &str| fs::read_to_string(format!("/proc/{process}/{what}")).expect("it runs");
    let stat = read("stat");
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // utime and stime: proc_pid_stat(5), fields 14 and 15; the first here is field 3. Linux counts
    // them in hundredths of a second on all machines of today.
    let field = |place: usize| fields[place].parse::<f64>().expect("a number") / 100.0;
    let status = read("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    let kilobytes: f64 = line.split_whitespace().nth(1).expect("kB").parse().expect("a number");
    (field(11) + field(12), kilobytes / 1e3)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_uses_memory_and_the_processor_more_and_more() {
        let (before, memory) = super::used("self");
        assert!(memory > 0.1, "{memory}");
        let mut sum = 0_u64;
        while super::used("self").0 <= before {
            sum = sum.wrapping_add((0..1_000_000_u64).map(std::hint::black_box).sum());
        }
        std::hint::black_box(sum);
    }
}
