//! Accounts with the stock iperf3 in both roles. If the machine's iperf3 is too old for iperf3's
//! current padding, OpenSSL encrypts instead.
//!
//! Keys and users are made as in the help of `weir perf server`.

use crate::support::{Running, Sandbox, await_some};
use crate::terminal::Terminal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes a sandbox with a key pair and a user `ann`, whose password is `PASSWORD`.
fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::new()?;
    let made = sandbox.start_command(shell(
        "openssl genrsa -out private.pem 2048 &&
         openssl rsa -in private.pem -pubout -out public.pem &&
         openssl rsa -in private.pem -traditional -out older.pem &&
         printf 'ann,%s\n' $(printf '{ann}PASSWORD' | sha256sum | cut -d' ' -f1) >> users.csv",
    ));
    let made = made.end();
    assert!(made.status.success(), "{made:?}");
    Some(sandbox)
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn serve(sandbox: &Sandbox, command: Command) -> Running {
    let mut server = sandbox.start_command(command);
    await_some("a listener", || {
        assert!(!server.has_ended(), "{:?}", server.output_so_far());
        server.listens(5201).then_some(())
    });
    server
}

fn weir(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(words.split_whitespace()).env_remove("IPERF3_PASSWORD");
    command
}

fn iperf3(words: &str) -> Command {
    let mut command = Command::new("iperf3");
    command.args(words.split_whitespace()).env_remove("IPERF3_PASSWORD");
    command
}

fn has_iperf3() -> bool {
    let version = Command::new("iperf3").arg("--version").output();
    let has = version
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("authentication"));
    if !has {
        testing::skip(testing::Need::Program("iperf3"));
    }
    has
}

/// Passes the password in the environment, as iperf3 takes it.
fn with(mut command: Command, password: &str) -> Command {
    command.env("IPERF3_PASSWORD", password);
    command
}

const SERVER: &str = "perf server --users users.csv --rsa-private-key private.pem";
const CLIENT: &str =
    "perf client 127.0.0.1 -n 1M --no-probes --username ann --rsa-public-key public.pem";
const STOCK_SERVER: &str =
    "-s --authorized-users-path users.csv --rsa-private-key-path private.pem";
const STOCK_CLIENT: &str = "-c 127.0.0.1 -n 1M --username ann --rsa-public-key-path public.pem";

#[test]
fn a_stock_client_is_served_only_with_its_password() {
    if !has_iperf3() {
        return;
    }
    let Some(sandbox) = sandbox() else { return };
    let server = serve(&sandbox, weir(&format!("{SERVER} --use-pkcs1-padding")));
    let output = sandbox.start_command(with(iperf3(STOCK_CLIENT), "PASSWORD")).end();
    assert!(output.status.success(), "{output:?}");
    for command in [
        with(iperf3(STOCK_CLIENT), "password"),
        with(iperf3(&STOCK_CLIENT.replace("ann", "bob")), "PASSWORD"),
        iperf3("-c 127.0.0.1 -n 1M"),
    ] {
        let output = sandbox.start_command(command).end();
        assert!(!output.status.success(), "{output:?}");
        let message = output.stderr + &output.stdout;
        assert!(message.contains("authorization failed"), "{message}");
    }
    server.signal("INT");
    let output = server.end();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.contains("its token fits no account"), "{output:?}");
    assert!(output.stdout.contains("it has no account here"), "{output:?}");
}

#[test]
fn a_stock_server_serves_our_client_only_with_its_password() {
    if !has_iperf3() {
        return;
    }
    let Some(sandbox) = sandbox() else { return };
    let server = serve(&sandbox, iperf3(STOCK_SERVER));
    let client = format!("{CLIENT} --use-pkcs1-padding");
    let output = sandbox.start_command(with(weir(&client), "PASSWORD")).end();
    assert!(output.status.success(), "{output:?}");
    // An older iperf3 lacks the padding that iperf3 uses since 3.17.
    for command in [with(weir(&client), "password"), with(weir(CLIENT), "PASSWORD")] {
        let output = sandbox.start_command(command).end();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.contains("did not accept the account"), "{output:?}");
    }
    server.signal("INT");
    server.end();
}

#[test]
fn weir_client_and_server_authenticate_with_and_without_options_of_iperf3() {
    let Some(sandbox) = sandbox() else { return };
    let stock = "perf server --authorized-users-path users.csv --rsa-private-key-path older.pem \
                 --time-skew-threshold 60";
    for (server, client) in [
        (SERVER.to_owned(), CLIENT.to_owned()),
        (stock.to_owned(), CLIENT.replace("--rsa-public-key", "--rsa-public-key-path")),
        (
            format!("{SERVER} --use-pkcs1-padding"),
            "perf rr 127.0.0.1 -t 50ms --username ann --rsa-public-key public.pem \
             --use-pkcs1-padding"
                .to_owned(),
        ),
    ] {
        let serving = serve(&sandbox, weir(&server));
        let output = sandbox.start_command(with(weir(&client), "PASSWORD")).end();
        assert!(output.status.success(), "{server}: {output:?}");
        serving.signal("INT");
        assert!(serving.end().status.success());
    }
}

/// Runs `openssl pkeyutl` without options for hashes.
fn openssl(sandbox: &Sandbox, words: &str, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(["pkeyutl", "-pkeyopt", "rsa_padding_mode:oaep"]).args(words.split_whitespace());
    command.current_dir(sandbox.home()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut openssl = command.spawn().unwrap();
    openssl.stdin.take().unwrap().write_all(input).unwrap();
    let output = openssl.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn base64(sandbox: &Sandbox, words: &str, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("base64");
    command.args(words.split_whitespace()).current_dir(sandbox.home());
    let mut base64 = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    base64.stdin.take().unwrap().write_all(input).unwrap();
    base64.wait_with_output().unwrap().stdout
}

/// iperf3 since 3.17 leaves the hash of OAEP to OpenSSL.
#[test]
fn credentials_have_the_same_padding_as_with_openssl() {
    let Some(sandbox) = sandbox() else { return };
    // OpenSSL decrypts the token of Weir's client.
    let listener = sandbox.inside(|| TcpListener::bind("127.0.0.1:5201").unwrap());
    let client = sandbox.start_command(with(weir(CLIENT), "PASSWORD"));
    let (mut socket, _) = listener.accept().unwrap();
    socket.read_exact(&mut [0; 37]).unwrap();
    socket.write_all(&[9]).unwrap();
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut parameters = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut parameters).unwrap();
    drop((socket, listener));
    client.end();
    let parameters: serde_json::Value = serde_json::from_slice(&parameters).unwrap();
    let token = base64(&sandbox, "-d", parameters["authtoken"].as_str().unwrap().as_bytes());
    let text = openssl(&sandbox, "-decrypt -inkey private.pem", &token);
    let text = String::from_utf8(text).unwrap();
    let time = text.strip_prefix("user: ann\npwd:  PASSWORD\nts:   ").unwrap();
    assert!(now().abs_diff(time.parse().unwrap()) < 600, "{text}");

    // Weir's server decrypts a token of OpenSSL.
    let server = serve(&sandbox, weir(&format!("{SERVER} --time-skew-threshold 600")));
    let text = format!("user: ann\npwd:  PASSWORD\nts:   {}", now());
    let token = openssl(&sandbox, "-encrypt -pubin -inkey public.pem", text.as_bytes());
    let token = String::from_utf8(base64(&sandbox, "-w0", &token)).unwrap();
    let parameters = format!(r#"{{"tcp":true,"time":1,"authtoken":"{token}"}}"#);
    // The server answers CREATE_STREAMS, and SERVER_ERROR to the replayed token.
    for (letter, state) in [(b'a', 10), (b'b', 254)] {
        let mut socket = sandbox.inside(|| TcpStream::connect("127.0.0.1:5201").unwrap());
        socket.write_all(&[&[letter; 36][..], &[0]].concat()).unwrap();
        let mut output = [0];
        socket.read_exact(&mut output).unwrap();
        assert_eq!(output, [9]);
        let length = u32::try_from(parameters.len()).unwrap();
        socket.write_all(&length.to_be_bytes()).unwrap();
        socket.write_all(parameters.as_bytes()).unwrap();
        socket.read_exact(&mut output).unwrap();
        assert_eq!(output, [state]);
    }
    server.signal("INT");
    server.end();
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_password_prompt_does_not_show_the_input() {
    let Some(sandbox) = sandbox() else { return };
    let server = serve(&sandbox, weir(SERVER));
    let mut terminal = Terminal::open();
    let child = terminal.start(&sandbox, weir(CLIENT));
    terminal.await_text("Password: ");
    assert!(!terminal.echoes());
    terminal.write("PASSWORD\n");
    let echoes = await_some("the echo", || terminal.echoes().then_some(true));
    let (status, shown) = terminal.end(child);
    assert!(status.success() && echoes, "{shown}");
    assert!(!shown.contains("PASSWORD"), "{shown}");

    // A cancelled prompt restores the terminal.
    let mut terminal = Terminal::open();
    let child = terminal.start(&sandbox, weir(CLIENT));
    terminal.await_text("Password: ");
    crate::support::signal(child.id(), "INT");
    await_some("the echo", || terminal.echoes().then_some(()));
    let (status, shown) = terminal.end(child);
    assert_eq!(status.code(), Some(1), "{shown}");
    server.signal("INT");
    server.end();
}

#[test]
fn a_missing_credential_is_reported_before_anything_is_sent() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.write("empty.csv", "# nobody\n");
    sandbox.write("wrong.csv", "ann,PASSWORD\n");
    for (command, says) in [
        (weir(CLIENT), "put it into IPERF3_PASSWORD"),
        (with(weir(&CLIENT.replace("public.pem", "private.pem")), "x"), "is no public key in PEM"),
        (with(weir(CLIENT), &"x".repeat(300)), "shorten the password"),
        (weir(&SERVER.replace("private.pem", "public.pem")), "is no private key in PEM"),
        (weir(&SERVER.replace("users.csv", "empty.csv")), "empty.csv names no user"),
        (weir(&SERVER.replace("users.csv", "wrong.csv")), "wrong.csv:1: is no user"),
        (weir(&SERVER.replace("users.csv", "absent.csv")), "absent.csv cannot be read"),
        (weir("perf server --users users.csv"), "--rsa-private-key"),
        (weir("perf client 127.0.0.1 --username ann"), "--rsa-public-key"),
        (weir("perf server --data-ports 80-90"), "as in 20000-20100"),
    ] {
        let output = sandbox.start_command(command).end();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(says), "{says}: {output:?}");
    }
}
