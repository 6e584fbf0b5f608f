// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Runs CAQM's core in BPF, for the parity test. */
#include "uapi.h"
#include <bpf/bpf_helpers.h>
#include "caqm_parity.h"

#define PARITY_STEP struct caqm_step
#define PARITY_TAKE caqm_take
#include "parity_steps.h"
