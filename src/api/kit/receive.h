/* SPDX-License-Identifier: Apache-2.0 */
/* A body that becomes a file for builds (build/uploads.h). */
#pragma once

#include "api/kit/call.h"
#include "build/uploads.h"

/* The upload is taken; answered with this status once all of it is there. */
void call_receive(struct call *c, struct upload *up, int status);
