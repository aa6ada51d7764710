/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's control protocol, as far as a machine is stopped, saved and run by it. What comes from QEMU is hostile. */
#pragma once

#include "base/str.h"
#include "tier/vm/vmm.h"

enum qmp_kind { QMP_BAD, QMP_RETURN, QMP_ERROR, QMP_GREETING, QMP_EVENT };

struct qmp_answer {
    enum qmp_kind kind;
    char text[128]; /* QMP_RETURN: the status that it says, if any; QMP_ERROR: why; QMP_GREETING: the version, "7.2" */
};

/* One line. */
struct qmp_answer qmp_judge(struct str line);

int qmp_ask(struct vmm_monitor *m, enum vmm_order order, usec_t until, char ret_why[static VMM_WHY_MAX]) WARN_UNUSED;
