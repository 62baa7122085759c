//! The figures that `ontempo export --prometheus` serves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::common::Killed;

/// The address of an exporter's page, from its first line of output.
pub(crate) fn address_of(exporting: &mut Killed) -> String {
    let mut printed = [0; 128];
    let out = exporting.0.stdout.as_mut().expect("its output");
    let count = out.read(&mut printed).expect("it says where");
    let printed = String::from_utf8_lossy(&printed[..count]);
    printed.trim().trim_start_matches("Prometheus: http://").trim_end_matches("/metrics").to_owned()
}

/// The page, requested with `Accept: kind`.
pub(crate) fn page(address: &str, kind: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("it listens");
    write!(connection, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {kind}\r\n\r\n")
        .expect("asked");
    let mut page = String::new();
    connection.read_to_string(&mut page).expect("answered");
    let (head, body) = page.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

/// Asserts that promtool finds no error in a page. Debian's package prometheus has it.
#[allow(dead_code)] // not each test has such a page
pub(crate) fn check_with_promtool(page: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut to = promtool.stdin.take().expect("its input");
    to.write_all(page.as_bytes()).expect("it reads");
    drop(to);
    let checked = promtool.wait_with_output().expect("it ends");
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}\n{page}", String::from_utf8_lossy(&said));
}
