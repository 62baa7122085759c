//! What a program has allocated, for tests and benchmarks of memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that are allocated: `#[global_allocator] static HEAP: CountingAllocator =
/// CountingAllocator::new();`.
#[derive(Debug, Default)]
pub struct CountingAllocator {
    held: AtomicUsize,
}

impl CountingAllocator {
    /// Of a program that has not allocated anything.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: AtomicUsize::new(0) }
    }

    /// Bytes that are allocated now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

// SAFETY: all is done by the system's allocator; only sizes are added up beside it.
#[expect(unsafe_code, reason = "an allocator is unsafe")]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.held.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.held.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(place, layout) }
    }
}
