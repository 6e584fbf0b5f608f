# Sourced by scripts/test: lists everything that tests may leave behind on a machine, before and
# after. Other users may work on the machine meanwhile, so a mark identifies the processes and files of tests:
# every process that the tests start inherits WEIR_TESTS in its environment and a private TMPDIR. The kernel
# removes a namespace without a name with its last process.

export WEIR_TESTS="$$-${RANDOM}"

# Prints the objects that exist on the machine outside TMPDIR, one per line.
machine_state() {
  [ ! -d /run/netns ] || find /run/netns -mindepth 1 -printf 'namespace %f\n'
  local interface
  for interface in /sys/class/net/*; do echo "interface ${interface##*/}"; done
  find /tmp /run -maxdepth 1 -name 'weir*' -printf 'file %p\n'
  [ ! -d /run/weir ] || find /run/weir -mindepth 1 -printf 'file %p\n'
  find /sys/fs/cgroup -type d -name 'weir*' -printf 'control group %p\n' 2>/dev/null || true
  [ ! -d /dev/shm ] || find /dev/shm -mindepth 1 -printf 'shared memory file %p\n'
  awk 'NR > 1 {print "System V segment " $2}' /proc/sysvipc/shm 2>/dev/null || true
}

# Succeeds if a living process uses this shared memory.
is_in_use() { # a line of machine_state
  local file
  case $1 in
    'shared memory file '*)
      file=${1#shared memory file }
      # A line of a mapping, or of a socket, ends with the file's name. Processes that end meanwhile are no
      # error.
      { grep -hsF -- " $file" /proc/[0-9]*/maps /proc/net/unix || true; } |
        FILE=" $file" awk 'substr($0, length($0) - length(ENVIRON["FILE"]) + 1) == ENVIRON["FILE"] {found = 1}
                           END {exit !found}' ;;
    'System V segment '*)
      # The seventh column counts the processes that have attached the segment (proc(5)).
      awk -v id="${1##* }" 'NR > 1 && $2 == id {found = $7 > 0} END {exit !found}' /proc/sysvipc/shm ;;
    *) false ;;
  esac
}

# Prints the objects that did not exist before. Leaves out shared memory in use: the memory belongs to another
# program, or to a process with the mark, which `marked_processes` prints.
new_objects() { # the former output of machine_state
  local object
  comm -13 <(sort <<<"$1") <(machine_state | sort) | while IFS= read -r object; do
    is_in_use "$object" || echo "$object"
  done
}

# Prints the processes with the mark, except this script's own processes.
marked_processes() {
  local environ pid
  for environ in /proc/[0-9]*/environ; do
    pid=${environ#/proc/}
    pid=${pid%/environ}
    [ "$pid" != "$$" ] && [ "$pid" != "$BASHPID" ] || continue
    { tr '\0' '\n' <"$environ"; } 2>/dev/null | grep -qx "WEIR_TESTS=$WEIR_TESTS" || continue
    # The commands of this loop have the mark too and have ended by now.
    [ ! -e "/proc/$pid/comm" ] || echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
  done 2>/dev/null
}
