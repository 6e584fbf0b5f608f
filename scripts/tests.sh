# Sourced by scripts/test: which tests run at the same time. Uses its function `part`, its `log` and its `summary`.

# Crates whose tests use no devices, child processes and namespaces. These tests need one CPU and hardly depend on time.
pure=(units stats results settings wire link cc quic report sim switch-flow switch-openflow switch-text switch-datapath switch-pipeline)
without_pure=(--workspace "${pure[@]/#/--exclude=weir-}" --locked --no-fail-fast)
# The command's tests that measure the machine: nothing runs beside these tests.
alone=(doctor generator lab)
# The command's tests that run beside the tests of the pure crates: tests of accel, which wait most of the time, and tests
# without a clock.
beside_pure=(accel documents scripts sim)

# Prints the arguments that select the integration tests of these folders of crates/.
integration_tests() {
  local folder file name
  for folder; do
    for file in "crates/$folder"/tests/*.rs "crates/$folder"/tests/*/main.rs; do
      [ -e "$file" ] || continue
      name=${file%/main.rs}
      printf -- '--test=%s\n' "$(basename "$name" .rs)"
    done
  done
}
# Prints the folders of the crates in neither list: not the command, not a pure crate.
other_folders() {
  local manifest folder
  for manifest in crates/*/Cargo.toml crates/switch/*/Cargo.toml; do
    folder=${manifest#crates/}
    folder=${folder%/Cargo.toml}
    case " weir ${pure[*]} " in
      *" ${folder/\//-} "*) ;;
      *) echo "$folder" ;;
    esac
  done
}
# Prints the command's integration tests in none of the lists.
rest_of_command() {
  local name
  for name in $(integration_tests weir); do
    case " ${alone[*]} ${beside_pure[*]} " in
      *" ${name#--test=} "*) ;;
      *) echo "$name" ;;
    esac
  done
}

# Starts these tests beside others. With job control they have a process group of their own, which this script ends when
# it ends.
start_beside() { # command...
  rm -f "$log.summary"
  set -m
  "$@" >"$log.beside" 2>&1 </dev/null &
  beside=$!
  set +m
}
end_beside() {
  local line outcome=0
  wait "$beside" || outcome=1
  beside=
  tee -a "$log" <"$log.beside"
  [ ! -e "$log.summary" ] || while IFS= read -r line; do summary+=("$line"); done <"$log.summary"
  return "$outcome"
}
# Also show the output of passing tests: it contains the reasons for skipping.
show() { cargo test "$@" -- --show-output 2>&1 | tee -a "$log"; }
# Tests that wait run beside tests that compute. Tests that measure the machine run alone.
tests() {
  local outcome=0
  : >"$log"
  start_beside pure_and_documentation
  show "${without_pure[@]}" --bins "${beside_pure[@]/#/--test=}" || outcome=1
  end_beside || outcome=1
  show "${without_pure[@]}" "${alone[@]/#/--test=}" || outcome=1
  start_beside other_crates
  # shellcheck disable=SC2046 # names of tests have no spaces
  show "${without_pure[@]}" $(rest_of_command) || outcome=1
  end_beside || outcome=1
  return "$outcome"
}
# These programs only compute, so a test that waits gets a CPU first. The package weir is named for its features: without
# it cargo builds the dependencies again. Its own tests are not among these: tests are named by file.
pure_and_documentation() {
  renice -n 10 "$BASHPID" >/dev/null
  local outcome=0 names packages=(--package=weir "${pure[@]/#/--package=weir-}" --locked)
  mapfile -t names < <(integration_tests "${pure[@]/#switch-/switch/}")
  cargo test "${packages[@]}" --no-fail-fast --lib "${names[@]}" -- --show-output || outcome=1
  cargo test "${packages[@]}" --doc || outcome=1
  # The summary of this process is its own, so a file carries the line.
  summary=() failed=0
  part "documentation" documentation
  printf '%s\n' "${summary[@]}" >"$log.summary"
  [ "$failed" = 0 ] || outcome=1
  return "$outcome"
}
# The tests of the crates that are neither pure nor the command.
other_crates() {
  local outcome=0 folders names
  mapfile -t folders < <(other_folders)
  mapfile -t names < <(integration_tests "${folders[@]}")
  cargo test "${without_pure[@]}" --lib "${names[@]}" -- --show-output || outcome=1
  cargo test "${without_pure[@]}" --doc || outcome=1
  return "$outcome"
}
