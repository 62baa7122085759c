//! Whom a receiver admits, and the line that its sender pastes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStderr, Stdio};
use std::time::{Duration, Instant};

use ontempo_testing::require_root;
use ontempo_transport::live::{Caller, Options};
use ontempo_transport::{FlowConfig, Token, Trust};
use serde_json::Value;

use super::common::{Killed, Place, SCENARIO, interrupt};
use super::{ran, send_with};

/// Starts `ontempo receive` at a free port with these options: its standard error, and the address
/// and the fingerprint in its first line.
fn receiver(place: &Place, more: &[&str]) -> (Killed, BufReader<ChildStderr>, String, String) {
    let words = [&["receive", "--listen", "127.0.0.1:0"], more].concat();
    let mut command = place.command(&words);
    command.env_remove("ONTEMPO_TOKEN").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().expect("it starts"));
    let mut err = BufReader::new(child.0.stderr.take().expect("its errors"));
    let line = line(&mut err);
    let words: Vec<&str> = line.split([' ', ',', '\n']).collect();
    let (address, fingerprint) = (words[2].to_owned(), words[5].to_owned());
    (child, err, address, fingerprint)
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

#[test]
fn without_a_token_only_the_sender_with_the_printed_line_is_admitted() {
    let place = Place::new("admission-random", SCENARIO);
    fs::write(place.path("in"), "a few bytes").expect("written");
    let (mut receiver, mut err, address, _) = receiver(&place, &["--to", "out"]);
    // Everybody knows the address.
    ran(send_with(&place, &address, "in", &["--insecure"]))
        .fails(2, &["the peer refused our token"]);
    let invitation = line(&mut err);
    let words: Vec<&str> = invitation.split(' ').collect();
    assert_eq!(words[..5], ["ontempo", "send", "--from", "...", "--to"], "{invitation}");
    let (_, token) = words[5].split_once('#').expect("a token");
    assert!(token.len() >= 32, "128 bits: {token}");
    let other = format!("{}#{}", words[5].split_once('#').expect("two").0, "0".repeat(32));
    ran(send_with(&place, &other, "in", &[])).fails(2, &["the peer refused our token"]);
    ran(send_with(&place, words[5], "in", &[])).succeeds();
    assert!(receiver.0.wait().expect("it ends").success());
    assert_eq!(fs::read_to_string(place.path("out")).expect("the file"), "a few bytes");
}

#[test]
fn anybody_is_admitted_if_the_user_says_so() {
    let place = Place::new("admission-anyone", SCENARIO);
    fs::write(place.path("in"), "a few bytes").expect("written");
    let (mut receiver, mut err, address, _) = receiver(&place, &["--to", "out", "--anyone"]);
    assert!(line(&mut err).contains("anyone"));
    assert!(!line(&mut err).contains('#'));
    ran(send_with(&place, &address, "in", &["--insecure"])).succeeds();
    assert!(receiver.0.wait().expect("it ends").success());
    let words = ["receive", "--listen", "127.0.0.1:0", "--to", "out2"];
    place.run(&[&words[..], &["--token", ""]].concat()).fails(2, &["admits anybody", "--anyone"]);
    place.run(&[&words[..], &["--token", "x", "--anyone"]].concat()).fails(2, &["--anyone"]);
}

#[test]
fn a_token_is_given_by_a_file_or_the_environment_and_not_printed() {
    let place = Place::new("admission-file", SCENARIO);
    fs::write(place.path("in"), "a few bytes").expect("written");
    let more = ["--to", "out", "--token-file", "token"];
    let (made, mut err, ..) = receiver(&place, &more);
    assert!(line(&mut err).contains('#'), "a new token is printed");
    drop(made);
    let mode = fs::metadata(place.path("token")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = fs::read_to_string(place.path("token")).expect("a token").trim_end().to_owned();
    assert_eq!(token.len(), 32);
    let (mut receiver, mut err, address, fingerprint) = receiver(&place, &more);
    let invitation = line(&mut err);
    assert!(!invitation.contains(&token) && invitation.ends_with("--token-file FILE"));
    let url = format!("ontempo://{address}/{fingerprint}");
    let send = |token: &str| {
        let mut command = place.command(&["send", "--from", "in", "--to", &url]);
        ran(command
            .env("ONTEMPO_TOKEN", token)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts"))
    };
    send("guess").fails(2, &["the peer refused our token"]);
    send(&token).succeeds();
    assert!(receiver.0.wait().expect("it ends").success());
    fs::set_permissions(place.path("token"), fs::Permissions::from_mode(0o644)).expect("set");
    ran(send_with(&place, &url, "in", &["--token-file", "token"]))
        .fails(2, &["other users have access", "chmod 600"]);
    ran(send_with(&place, &url, "in", &["--token-file", "none"])).fails(3, &["no such file"]);
    if require_root() {
        fs::set_permissions(place.path("token"), fs::Permissions::from_mode(0o600)).expect("set");
        std::os::unix::fs::chown(place.path("token"), Some(65_534), None).expect("root may");
        ran(send_with(&place, &url, "in", &["--token-file", "token"]))
            .fails(2, &["--token-file token", "user 65534 owns it", "user 0 or to root"]);
    }
}

#[test]
fn what_contradicts_the_url_is_an_error_that_does_not_repeat_the_token() {
    let place = Place::new("admission-url", SCENARIO);
    fs::write(place.path("in"), "a few bytes").expect("written");
    let (right, wrong) = ("00".repeat(32), "11".repeat(32));
    let url = format!("ontempo://127.0.0.1:9/{right}#secret");
    for (more, words) in [
        (&["--fingerprint", &wrong][..], "--fingerprint: the URL has another"),
        (&["--insecure"], "leave out --trust and --insecure"),
        (&["--token", "other"], "the URL has another token"),
    ] {
        ran(send_with(&place, &url, "in", more)).fails(2, &[words]);
    }
    for (url, words) in [
        (format!("ontempo://127.0.0.1/{right}#secret"), "the port is missing or wrong"),
        ("ontempo://127.0.0.1:9/abc#secret".to_owned(), "the fingerprint is missing or wrong"),
        (format!("ontempo://127.0.0.1:9/{right}#secret%2"), "the token behind # is wrong"),
        (format!("http://127.0.0.1:9/{right}#secret"), "it begins with ontempo://"),
    ] {
        let ran = ran(send_with(&place, &url, "in", &[]));
        ran.fails(2, &[words]);
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
}

#[test]
fn json_has_the_url_and_qr_draws_it() {
    let place = Place::new("admission-json", SCENARIO);
    let words = ["receive", "--listen", "127.0.0.1:0", "--to", "out", "--json", "--qr"];
    let mut command = place.command(&words);
    command.env_remove("ONTEMPO_TOKEN").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().expect("it starts"));
    let mut out = BufReader::new(child.0.stdout.take().expect("its output"));
    let listening: Value = serde_json::from_str(&line(&mut out)).expect("JSON");
    let (local, fingerprint) = (&listening["local"], &listening["fingerprint"]);
    let expected = format!(
        "ontempo://{}/{}#",
        local.as_str().expect("an address"),
        fingerprint.as_str().expect("a fingerprint")
    );
    let url = listening["url"].as_str().expect("a URL");
    assert!(url.starts_with(&expected) && url.len() == expected.len() + 32, "{url}");
    assert_eq!(listening["anyone"], false);
    let mut err = BufReader::new(child.0.stderr.take().expect("its errors"));
    let drawn: Vec<String> = (0..20).map(|_| line(&mut err)).collect();
    assert!(drawn.iter().skip(4).all(|line| line.contains('▀') || line.contains('▄')), "{drawn:?}");
}

#[test]
fn a_peer_with_the_token_makes_a_bounded_number_of_lines() {
    let place = Place::new("admission-lines", SCENARIO);
    let receiver = super::Receiver::start(&place, &["--to", "udp://127.0.0.1:9"]);
    let token = Token::new(b"open").expect("short");
    let caller = Caller::bind("127.0.0.1:0".parse().expect("an address"), &Options::default());
    let caller = caller.expect("bound");
    let begun = Instant::now();
    let (mut made, max) = (0, Duration::from_secs(10));
    while made < 150 && begun.elapsed() < max {
        let connected = caller.connect(receiver.address, "a", &Trust::Insecure, token.clone());
        // It is refused while those before it take all places of this host.
        let Ok(connection) = connected else { continue };
        made += 1;
        let label = format!("ontempo media 7 {made:032x} 1 0 0 0");
        let flow = connection.open_flow(FlowConfig { label, ..FlowConfig::default() });
        flow.expect("opened").finish();
        // The receiver closes, or takes the next one in its turn.
        connection.closed(Duration::from_millis(10));
        connection.close("enough");
    }
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&receiver.child);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    let (lines, seconds) = (printed.lines().count() as f64, begun.elapsed().as_secs_f64());
    assert!(lines > 50.0, "it says what happens: {printed}");
    // 64 about connections, and 16 about refusals, at once.
    assert!(lines < 64.0 + 16.0 + 2.0 * seconds + 8.0, "{lines} lines in {seconds} s");
    assert!(printed.contains("more lines about connections were not shown"), "{printed}");
}
