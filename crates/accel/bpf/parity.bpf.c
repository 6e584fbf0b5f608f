// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Runs tcpa's core in BPF, for the parity test. */
#include "uapi.h"
#include <bpf/bpf_helpers.h>
#include "parity.h"

#define PARITY_STEP struct parity_step
#define PARITY_TAKE parity_take
#include "parity_steps.h"
