/* SPDX-License-Identifier: Apache-2.0 */
/*
 * append PATH EVENTS BATCH: appends that many events of the size of an exec.start, committing every BATCH of them as the loop does once a turn,
 * and prints microseconds per batch, one a line. Linked with the service's own libraries.
 */
#include "base/clock.h"
#include "event/log.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int measure(const char *path, unsigned long events, unsigned long batch, struct err *err)
{
    AUTO(store_close) struct store *store = NULL;
    AUTO(event_log_close) struct event_log *log = NULL;
    const struct event_draft draft = {
        .sandbox = "ibenchbenchbenchbench",
        .kind = EVENT_EXEC_START,
        .source = EVENT_CLIENT,
        .grade = EVENT_OBSERVED_HOST,
        .actor = STR("e2b"),
        .data = STR(
            "{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"make -j2 && make check\"],\"user\":\"user\",\"deadline\":1795298477000000}"),
    };
    if (store_open(path, &store, err) < 0 || event_log_open(store, &log, err) < 0)
        return -1;
    for (unsigned long at = 0; at < events; at += batch) {
        double start = now_us();
        for (unsigned long i = 0; i < batch; i++)
            if (event_append(log, &draft, NULL, err) < 0)
                return -1;
        if (store_commit(store, err) < 0)
            return -1;
        printf("%.2f\n", now_us() - start);
        if (store_wal_pages(store) > 4000 && store_checkpoint(store, err) < 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct err err;
    if (argc != 4)
        return 2;
    if (measure(argv[1], strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10), &err) < 0) {
        (void)fprintf(stderr, "append: %s\n", err.msg);
        return 1;
    }
    return 0;
}
