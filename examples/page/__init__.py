"""The pictures of the example `page`; the example itself is in Rust."""
