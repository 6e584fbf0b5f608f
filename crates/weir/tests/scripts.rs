//! The scripts of the project.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Command;
use support::is_installed;

/// Shared memory, as a file or as a System V segment, outlives the program that made it.
#[test]
fn shared_memory_that_a_test_leaves_behind_is_found() {
    for program in ["ipcmk", "ipcrm"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let script = r#"
        . scripts/leftovers.sh
        before=$(machine_state)
        file=$(mktemp /dev/shm/left-XXXXXX)
        segment=$(ipcmk -M 4096 | tr -dc 0-9)
        trap 'rm -f "$file"; ipcrm -m "$segment" 2>/dev/null' EXIT
        new_objects "$before" | grep -xF "shared memory file $file"
        new_objects "$before" | grep -xF "System V segment $segment"
        rm "$file"
        ipcrm -m "$segment"
        new_objects "$before" | grep -F -e "$file" -e "segment $segment" && exit 1
        exit 0
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-c", script]).current_dir(root).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("shared memory file /dev/shm/left-"), "{output:?}");
    assert!(text.contains("System V segment "), "{output:?}");
}

/// Memory in use belongs to a running process, perhaps of another program.
#[test]
fn shared_memory_in_use_is_not_left_behind() {
    if !is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    let script = r#"
        . scripts/leftovers.sh
        before=$(machine_state)
        export file=$(mktemp /dev/shm/left-XXXXXX)
        coproc python3 -c '
import mmap, os
with open(os.environ["file"], "r+b") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
    print("mapped", flush=True)
    input()'
        trap 'rm -f "$file"; kill $COPROC_PID 2>/dev/null' EXIT
        read -r word <&"${COPROC[0]}" && [ "$word" = mapped ] || exit 2
        new_objects "$before" | grep -F "$file" && exit 1
        exit 0
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-c", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// `scripts/test` starts several test programs at once. Here a function takes the place of cargo.
#[test]
fn each_program_of_tests_runs_once() {
    let script = r#"
        . scripts/tests.sh
        log=$(mktemp) summary=() failed=0 beside=()
        trap 'rm -f "$log"*' EXIT
        cargo() { printf '%s\n' "$@"; }
        documentation() { :; }
        part() { summary+=("passed $1"); }
        tests >/dev/null || exit
        grep -e --test= "$log" | sort >"$log.run"
        # The tests of `lab` run in two parts, which a part of a name divides.
        {
          echo --test=lab
          for file in crates/{*,switch/*}/tests/{*.rs,*/main.rs}; do
            [ -e "$file" ] || continue
            file=${file%/main.rs}
            echo "--test=$(basename "$file" .rs)"
          done
        } | sort >"$log.all"
        diff "$log.run" "$log.all" || exit
        # cargo runs all programs of a name, so the command shares no name with another crate.
        others=$(integration_tests $(other_folders) "${pure[@]/#switch-/switch/}" | sort -u)
        comm -12 <(integration_tests weir | sort) - <<<"$others" | grep . && exit 1
        [ "$(grep -cx -e --skip "$log") $(grep -cx -e "$waiting" "$log")" = "1 2" ] || exit
        # The tests in sources, those of documents, and a part of the process beside the others.
        for kind in lib bins doc; do echo "$kind $(grep -cx -e --$kind "$log")"; done
        echo "${summary[@]}"
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-uc", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "lib 2\nbins 1\ndoc 2\npassed documentation\n");
}

/// `scripts/test` fails if a kind of measurement was invalid each time, and counts a skipped test
/// once. The log is as cargo and `testing` write it.
#[test]
fn the_log_of_tests_shows_skipped_tests_and_kinds_that_were_never_judged() {
    let script = r#"
        . scripts/tests_log.sh
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        cat >"$log" <<'LOG'
running 5 tests
test measures::again ... ok
test measures::late ... ok
test needs::ipv6 ... ok
test needs::part ... ok
test wrong ... FAILED

successes:

---- measures::again stdout ----
DISTURBED emulated link, attempt 1: the link was 9 ms late
NOT JUDGED emulated link: all 3 attempts were invalid
JUDGED emulated link

---- measures::late stdout ----
NOT JUDGED rounds: all 3 attempts were invalid

---- needs::ipv6 stdout ----
SKIPPED: no IPv6
SKIPPED: no IPv6: the second reason counts no second test

---- needs::part stdout ----
SKIPPED in part: no tbf

test result: FAILED. 4 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s
error: test failed
  process didn't exit successfully: `target/debug/deps/other-1` (signal: 11, SIGSEGV: invalid memory reference)
test without_capture ...
SKIPPED: no veth
ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
LOG
        judged && exit 1
        left_out
        count_tests
        echo "JUDGED rounds" >>"$log"
        judged
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-uc", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let expected = "\
no valid measurement of this kind: rounds
left out       in test needs::ipv6: no IPv6
left out       in test needs::ipv6: no IPv6: the second reason counts no second test
left out       in test needs::part: in part: no tbf
left out       in test without_capture: no veth
3 passed, 2 failed, 4 skipped
each kind of measurement was judged at least once
";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

/// The tarball has another program in the place of weir.
#[test]
fn a_container_image_is_complete_and_the_same_for_another_user() {
    for program in ["python3", "ldd", "sha256sum"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let script = r#"
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        mkdir -p "$work/weir-1-linux/bin" "$work/weir-1-linux/share/weir" "$work/weir-1-linux/lib"
        cp "$(command -v env)" "$work/weir-1-linux/bin/weir"
        touch "$work/weir-1-linux/share/weir/kept" "$work/weir-1-linux/lib/left-out"
        tar -C "$work" -czf "$work/weir.tar.gz" weir-1-linux
        image() { scripts/oci-image "$work/weir.tar.gz" --name weir:1 --epoch 1700000000 --out "$1"; }
        image "$work/a.oci.tar"
        (umask 077 && TZ=Asia/Tokyo image "$work/b.oci.tar")
        cmp "$work/a.oci.tar" "$work/b.oci.tar"
        mkdir "$work/image" "$work/root"
        tar -C "$work/image" -xf "$work/a.oci.tar"
        cd "$work/image/blobs/sha256"
        for blob in *; do echo "$blob  $blob" | sha256sum --check --quiet; done
        digest() { python3 -c 'import json, sys; at = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: at = at[int(key) if key.isdigit() else key]
print(at.partition(":")[2])' "$@"; }
        manifest=$(digest ../../index.json manifests 0 digest)
        config=$(digest "$manifest" config digest) layer=$(digest "$manifest" layers 0 digest)
        [ "$(gzip -dc "$layer" | sha256sum | cut -d " " -f 1)" = "$(digest "$config" rootfs diff_ids 0)" ]
        grep -q '"Entrypoint":\["/usr/bin/weir"\]' "$config"
        tar -C "$work/root" -xzf "$layer"
        [ -e "$work/root/usr/share/weir/kept" ]
        [ ! -e "$work/root/usr/lib/left-out" ]
        if command -v skopeo >/dev/null; then
          skopeo --insecure-policy inspect "oci-archive:$work/a.oci.tar:weir:1" | grep -F "sha256:$layer"
        fi
        unshare --map-root-user true || exit 0
        unshare --map-root-user --root="$work/root" /bin/sh -euc '/usr/bin/weir inside=yes /bin/sh -c "echo inside \$inside"'
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-euc", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let refused = String::from_utf8_lossy(&output.stderr).contains("unshare");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(refused || text.contains("inside yes"), "{output:?}");
}

/// The folder has another program in the place of weir.
#[test]
fn an_rpm_package_has_the_scripts_of_the_debian_package_and_is_the_same_for_another_user() {
    for program in ["rpmbuild", "rpm2archive"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let script = r#"
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        # rpm keeps a database in HOME.
        export SOURCE_DATE_EPOCH=1700000000 HOME=$work
        mkdir -p "$work/root/usr/bin" "$work/root/usr/share/weir/profiles"
        cp "$(command -v env)" "$work/root/usr/bin/weir"
        ln -s ../../bin/weir "$work/root/usr/share/weir/link"
        touch "$work/root/usr/share/weir/profiles/two words"
        chmod -R u=rwX,go=rX "$work/root"
        find "$work/root" -exec touch --no-dereference --date=@1700000000 {} +
        cp -a "$work/root" "$work/copy"
        scripts/rpm "$work/root" --version 1.0-rc1 --out "$work/a"
        other=(unshare --map-user=4711 --map-group=4711)
        "${other[@]}" true 2>/dev/null || other=()
        (umask 077 && TZ=Asia/Tokyo "${other[@]}" scripts/rpm "$work/copy" --version 1.0-rc1 --out "$work/b")
        cmp "$work"/[ab]/*.rpm
        rpm=$(echo "$work"/a/weir-1.0~rc1-1.*.rpm)
        files=$(rpm2archive -n - <"$rpm" | tar -t | grep -v '/$' | sort | tr '\n' ,)
        [ "$files" = "./usr/bin/weir,./usr/share/weir/link,./usr/share/weir/profiles/two words," ]
        rpm -qp --requires "$rpm" | grep '^libc\.so\.6'
        for script in POSTIN:postinst PREUN:prerm POSTUN:postrm; do
          rpm -qp --qf "%{${script%:*}}\n" "$rpm" >"$work/script"
          diff <(tail -n +2 "$work/script") <(tail -n +2 "packaging/${script#*:}")
          for versions in 0 1; do sh -euc "$(head -1 "$work/script"); echo $script \$1" sh $versions; done
        done
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-euc", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let arguments: Vec<&str> = text.lines().filter(|line| line.contains(':')).collect();
    let expected = [
        "POSTIN:postinst configure",
        "POSTIN:postinst configure",
        "PREUN:prerm remove",
        "PREUN:prerm upgrade",
        "POSTUN:postrm remove",
        "POSTUN:postrm upgrade",
    ];
    assert_eq!(arguments, expected);
}

#[test]
fn a_program_of_another_architecture_gets_no_packages() {
    for program in ["dpkg-deb", "objcopy", "readelf", "strip", "gzip", "tar", "node", "python3"] {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("weir");
    let mut bytes = std::fs::read("/bin/sh").unwrap();
    // Writes EM_S390 to e_machine of the ELF header (elf(5)).
    bytes[18..20].copy_from_slice(&22_u16.to_ne_bytes());
    std::fs::write(&program, bytes).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("scripts/package");
    command.args(["--binary", program.to_str().unwrap(), "--out"]).arg(folder.path().join("out"));
    let output = command.env("SOURCE_DATE_EPOCH", "1700000000").current_dir(root).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("is a program for IBM S/390: make its packages on such"), "{output:?}");
    assert!(!folder.path().join("out").exists());
}

/// cargo and rustc are scripts here: cargo records its flags, and builds a program of another
/// architecture, for which there are no packages.
#[test]
fn packages_are_built_in_a_folder_with_a_space_in_its_path() {
    for program in
        ["cc", "dpkg-deb", "objcopy", "readelf", "strip", "gzip", "tar", "node", "python3"]
    {
        if !is_installed(program) {
            return testing::skip(testing::Need::Program(program));
        }
    }
    let script = r#"
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        mkdir -p "$work/two words/scripts" "$work/programs"
        cp Cargo.toml Cargo.lock "$work/two words"
        cp scripts/package scripts/rust.sh "$work/two words/scripts"
        printf '#!/bin/sh\necho rustc 99.0.0\n' >"$work/programs/rustc"
        cat >"$work/programs/cargo" <<'CARGO'
#!/bin/sh
set -eu
echo 'int main(void) { return 0; }' >"$FLAGS.c"
cc $CFLAGS -E -o "$FLAGS.i" "$FLAGS.c"
printf '%s' "$CARGO_ENCODED_RUSTFLAGS" | tr '\037' '\n' >"$FLAGS"
mkdir -p "$CARGO_TARGET_DIR/release"
cp "$FOREIGN" "$CARGO_TARGET_DIR/release/weir"
CARGO
        chmod +x "$work/programs/rustc" "$work/programs/cargo"
        # e_machine of the ELF header (elf(5)): EM_S390.
        cp /bin/sh "$work/foreign"
        python3 -c '
import struct, sys
with open(sys.argv[1], "r+b") as file:
    file.seek(18)
    file.write(struct.pack("=H", 22))' "$work/foreign"
        unset CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR
        export FLAGS="$work/flags" FOREIGN="$work/foreign" SOURCE_DATE_EPOCH=1700000000
        export XDG_CACHE_HOME="$work/cache" CARGO_HOME="$work/cargo home" RUSTFLAGS="-C debuginfo=1"
        export PATH="$work/programs:$PATH"
        "$work/two words/scripts/package" 2>"$work/errors" && exit 1
        grep -F "is a program for IBM S/390" "$work/errors"
        [ ! -e "$work/two words/target" ]
        sed "s|$work|WORK|" "$work/flags"
    "#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash").args(["-euc", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let flags: Vec<&str> = text.lines().skip(1).collect();
    let expected = [
        "-C",
        "debuginfo=1",
        "--remap-path-prefix=WORK/cargo home/registry=/usr/src/cargo/registry",
        "--remap-path-prefix=WORK/cargo home=/usr/src/cargo",
        "--remap-path-prefix=WORK/two words=/usr/src/weir",
        "--remap-path-prefix=WORK/cache/weir/target=/usr/src/weir/target",
    ];
    assert_eq!(flags, expected);
}

/// The case failed at its last check. Other lines of the case ask for tunnels and NSH, which must
/// not excuse the failure.
#[test]
fn only_the_lines_that_differ_excuse_a_failed_open_vswitch_case() {
    if !is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    let script = r#"
import importlib.machinery, importlib.util
loader = importlib.machinery.SourceFileLoader("ovs_tests", "scripts/ovs-tests")
suite = importlib.util.module_from_spec(importlib.util.spec_from_loader("ovs_tests", loader))
loader.exec_module(suite)

BEFORE = """1. a.at:1: testing a case ...
/o/a.at:2: ovs-ofctl add-flow br0 "tun_src=1.1.1.1 actions=decap(),encap(nsh)"
/o/a.at:3: ovs-ofctl add-tlv-map br0 x
--- /dev/null\t1
+++ /w/stderr\t2
@@ -0,0 +1 @@
+tun_metadata0
"""
def excuse(*lines):
    behind = "t.log:\n> tun_src nsh_\n1. a.at:1: 1. a case (a.at:1): FAILED (a.at:9)\n"
    return suite.excuse(BEFORE + "\n".join(lines) + "\n" + behind, False)

HEAD = ["--- -\t1", "+++ /w/stdout\t2", "@@ -1,2 +1,2 @@"]
check = "/o/a.at:9: ovs-ofctl dump-flows br0"
tunnels = "tunnels"
for expected, *lines in [
    (None, check, *HEAD, "-n_packets=8", "+n_packets=3"),
    (None, check, *HEAD, " tun_src=1.1.1.1", "-n_packets=8", "+n_packets=3"),
    (None, check, "/o/a.at:9: exit code was 1, expected 0"),
    (None, "a.at:9: waiting until test -s log...", "a.at:9: wait failed after 5 seconds",
     "/o/m.at:247: hard failure"),
    (None, check, *HEAD, "-vlan(vid=9),encap(eth_type(0x0800))", "+vlan(vid=8)"),
    (tunnels, check, *HEAD, "-tun_src=1.1.1.1 actions=2", "+actions=2"),
    # Another line differs, too.
    (None, check, *HEAD, "-tun_src=1.1.1.1 actions=2", "+actions=2", " drop", "-a", "+b"),
    (tunnels, "/o/a.at:9: ovs-ofctl add-flow br0 tun_dst=1.1.1.1,actions=1",
     "/o/a.at:9: exit code was 1, expected 0"),
    (tunnels, "/o/a.at:9: ovs-ofctl add-flows br0 f", "--- /dev/null\t1", "+++ /w/stderr\t2",
     "@@ -0,0 +1,2 @@", "+OFPT_ERROR (xid=0x4): OFPBRC_BAD_TYPE", "+ADD tun_metadata0=1 drop",
     "/o/a.at:9: exit code was 1, expected 0"),
]:
    assert excuse(*lines) == expected, (expected, lines, excuse(*lines))
"#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]).current_dir(root);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The trend of a soak run and its checks of transfers, in Python's own tests.
#[test]
fn a_soak_run_reports_only_growth_and_lost_bytes() {
    if !is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("python3");
    command.args(["-B", "scripts/soaking/tests.py"]).current_dir(root);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A shell script takes the place of weir, and ends its runs in every possible way.
#[test]
fn stale_runs_are_repeated_in_order_and_interrupted_or_unfit_runs_are_continued() {
    if !is_installed("python3") {
        return testing::skip(testing::Need::Program("python3"));
    }
    let script = r##"
import importlib.machinery, importlib.util, os, pathlib, signal, subprocess, sys, tempfile, threading, time
loader = importlib.machinery.SourceFileLoader("record", "scripts/record")
record = importlib.util.module_from_spec(importlib.util.spec_from_loader("record", loader))
loader.exec_module(record)
signal.signal(signal.SIGINT, signal.default_int_handler)

WEIR = """#!/bin/sh
echo "$*" >>"$0.calls"
for last; do :; done
case "$2 $3" in
  "run slow") mkdir -p "$last"; touch "$last/journal.jsonl"; trap "exit 1" INT
              case "$*" in *--resume*) exit 0 ;; esac
              while :; do sleep 0.02; done ;;
  "run broken") exit 2 ;;
  "run bound") mkdir "$last"; exit 1 ;;
  "run unfit") mkdir -p "$last"; touch "$last/journal.jsonl" "$last/results.json" ;;
  "run peerless"|"run alone")
              mkdir -p "$last"; echo '{"notes": ["peer is left out: install it"]}' >"$last/results.json" ;;
  "run "*) mkdir "$last" ;;
  "record "*/unfit) exit 1 ;;
  record*) echo data >"$last" ;;
esac
"""
def run(name, seconds=1, form="the quick form; repeats: 2"):
    text = f"- **Form:** {form}\ntarget/release/weir lab run {name} --repeats 2\n"
    return record.Run(name, text, seconds, "stale")

runs = record.in_order([run("long", 90), run("short", 2), run("third"), run("second", 7)],
                       "see [it](docs/results/long.md)\n$ weir lab run second --quick\n")
assert [one.name for one in runs] == ["second", "long", "third", "short"], runs

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    weir = folder / "weir"
    weir.write_text(WEIR)
    weir.chmod(0o755)
    def repeat(*runs, idle=lambda: None):
        return record.repeat_all(runs, 1, weir, folder, idle, 0)
    def calls():
        file = folder / "weir.calls"
        lines = file.read_text().replace(str(folder), "F").splitlines()
        file.unlink()
        return lines
    # A failed run stops no other run, and a bound that does not hold makes no run unfit.
    outcomes = repeat(run("good"), run("broken"), run("bound"), run("unfit"), run("endless", 4000), run("last"))
    texts = [text.split(":")[0] for _, text in outcomes]
    assert texts == ["recorded", "FAILED", "recorded", "FAILED", "not begun", "recorded"], outcomes
    assert (folder / "bound.tar.gz").read_text() == "data\n"
    made = calls()
    assert made[:2] == ["lab run good --repeats 2 --out F/good", "lab record F/good --archive F/good.tar.gz"], made
    assert not any("endless" in line for line in made), made
    # No run without a peer replaces a page with this peer's figures.
    ((_, text), (_, accepted)) = repeat(run("peerless"), run("alone", form="the quick form; left out: other, peer"))
    assert text.startswith("FAILED: the page has figures of peer, and the run has none"), text
    assert accepted == "recorded", accepted
    assert calls()[1].startswith("lab run alone"), "the run without its peer was recorded"
    assert [text.split(":")[0] for _, text in repeat(run("unfit"))] == ["FAILED"]
    assert calls()[0] == "lab run unfit --repeats 2 --resume F/unfit --again"

    def interrupt():
        while not (folder / "slow/journal.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    outcomes = repeat(run("slow"), run("never"))
    assert [(name, text.split(":")[0]) for name, text in outcomes] == [("slow", "interrupted")], outcomes
    assert calls() == ["lab run slow --repeats 2 --out F/slow"]
    assert repeat(run("slow")) == [("slow", "recorded")]
    assert calls()[0] == "lab run slow --repeats 2 --resume F/slow"

    # A program that keeps a CPU busy is named, and no run begins beside it.
    outcomes = repeat(run("good"), run("last"), idle=lambda: "cc1 (process 7) uses 90% of a CPU")
    assert outcomes == [("good", "not begun: cc1 (process 7) uses 90% of a CPU")], outcomes
    assert not (folder / "weir.calls").exists()

loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    until = time.monotonic() + 60
    while "of a CPU" not in (record.busy(0.2) or ""):
        assert time.monotonic() < until, "the busy program is never found"
finally:
    loop.kill()
    loop.wait()
"##;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]).current_dir(root);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
