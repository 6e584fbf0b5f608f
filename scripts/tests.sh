# Sourced by scripts/test: which tests run at the same time. Uses the function `part` and the variables `log`, `summary` and
# `beside` of scripts/test.

# Crates whose tests use no devices, child processes and namespaces. These tests need one CPU and hardly depend on time.
pure=(units stats results settings wire link cc quic report sim switch-flow switch-openflow switch-text switch-datapath switch-pipeline)
without_pure=(--workspace "${pure[@]/#/--exclude=weir-}" --locked --no-fail-fast)
# The command's tests that measure the machine: nothing runs beside these tests, nor beside the tests of `lab`.
alone=(doctor generator perf)
# The tests of `lab` whose labs wait for deadlines, by a part of their names: other tests may run beside these.
waiting=failures::
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
# Prints the folders of the crates that are neither pure nor the command.
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
# Prints the command's integration tests that are not in `alone` or `beside_pure`, except `lab`.
rest_of_command() {
  local name
  for name in $(integration_tests weir); do
    case " lab ${alone[*]} ${beside_pure[*]} " in
      *" ${name#--test=} "*) ;;
      *) echo "$name" ;;
    esac
  done
}

# Starts tests beside other tests. With job control the tests have a process group of their own, which scripts/test ends when
# scripts/test itself ends. The list `beside` has a name at the index of each process.
start_beside() { # name, command...
  local name=$1
  shift
  set -m
  "$@" >"$log.$name" 2>&1 </dev/null &
  beside[$!]=$name
  set +m
}
end_beside() {
  local process outcome=0
  for process in "${!beside[@]}"; do
    wait "$process" || outcome=1
    tee -a "$log" <"$log.${beside[$process]}"
  done
  beside=()
  return "$outcome"
}
# Runs tests and shows the output of passing tests, too, because the output has the reasons for skipping.
show() { # the arguments of cargo, --, those of the test programs
  cargo test "${without_pure[@]}" "$@" --show-output
}
# Runs tests that wait beside tests that compute, and tests that measure the machine alone.
tests() {
  local line outcome=0
  : >"$log"
  : >"$log.summary"
  start_beside pure pure_and_documentation
  show --bins "${beside_pure[@]/#/--test=}" -- 2>&1 | tee -a "$log" || outcome=1
  end_beside || outcome=1
  while IFS= read -r line; do summary+=("$line"); done <"$log.summary"
  show "${alone[@]/#/--test=}" -- 2>&1 | tee -a "$log" || outcome=1
  show --test=lab -- --skip "$waiting" 2>&1 | tee -a "$log" || outcome=1
  start_beside others other_crates
  start_beside waiting show --test=lab -- "$waiting"
  # shellcheck disable=SC2046 # names of tests have no spaces
  show $(rest_of_command) -- 2>&1 | tee -a "$log" || outcome=1
  end_beside || outcome=1
  return "$outcome"
}
# These programs only compute, so a test that waits gets a CPU first. The package weir is named for its features: without the
# name cargo builds the dependencies again. The tests of weir itself do not run here, because tests are named by file.
pure_and_documentation() {
  renice -n 10 "$BASHPID" >/dev/null
  local outcome=0 names packages=(--package=weir "${pure[@]/#/--package=weir-}" --locked)
  mapfile -t names < <(integration_tests "${pure[@]/#switch-/switch/}")
  cargo test "${packages[@]}" --no-fail-fast --lib "${names[@]}" -- --show-output || outcome=1
  cargo test "${packages[@]}" --doc || outcome=1
  # This function runs in a process of its own, so a file carries the lines of its summary to the caller.
  summary=() failed=0
  part "documentation" documentation
  printf '%s\n' "${summary[@]}" >"$log.summary"
  [ "$failed" = 0 ] || outcome=1
  return "$outcome"
}
# Runs the tests of the crates that are neither pure nor the command.
other_crates() {
  local outcome=0 folders names
  mapfile -t folders < <(other_folders)
  mapfile -t names < <(integration_tests "${folders[@]}")
  show --lib "${names[@]}" -- || outcome=1
  cargo test "${without_pure[@]}" --doc || outcome=1
  return "$outcome"
}
