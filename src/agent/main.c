/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cove-agent: PID 1 of every sandbox. It is executed inside the finished sandbox with descriptor 3 as its control
 * socket (agent/agent.h) and 0 to 2 on /dev/null; its environment is where its children's LANG and PATH come from. In a
 * virtual machine it is executed by the kernel, and finishes the sandbox itself (agent/guest.h).
 */
#include "agent/agent.h"
#include "agent/guest.h"
#include "base/fd.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CONTROL_FD = 3, EXIT_SETUP = 70 };

static const char *const guest_environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                                "LANG=C.UTF-8", NULL};

int main(int argc, char **argv, char **envp)
{
    static struct agent agent;
    struct agent_config config = AGENT_CONFIG_DEFAULT;
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return fd_write_all(1, "cove-agent " COVE_VERSION "\n", strlen("cove-agent " COVE_VERSION "\n")) < 0;
    if (argc > 1 && strcmp(argv[1], "--stdin") == 0) { /* what starts it passes no other one */
        if (dup2(0, CONTROL_FD) < 0)
            return EXIT_SETUP;
        (void)prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0); /* of what it starts */
    }
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)prctl(PR_SET_NAME, "cove-agent"); /* executed by descriptor, it would be called after that */
    (void)syscall(SYS_close_range, CONTROL_FD + 1, ~0U, 0);
    (void)umask(022);
    config.environment = (const char *const *)envp;
    bool is_guest = guest_is();
    if (is_guest) {
        config.environment = guest_environment;
        guest_enter(CONTROL_FD);
    }
    if (agent_init(&agent, &config, CONTROL_FD) < 0)
        return EXIT_SETUP;
    agent.is_guest = is_guest;
    /* The null device that it was given is the host's: nothing of the host shall be found below /proc/1/fd. */
    for (int fd = 0; fd <= 2; fd++)
        if (dup2(agent.null_fd, fd) < 0)
            return EXIT_SETUP;
    int r = agent_run(&agent);
    /* Nothing of a sandbox outlives its supervisor. As PID 1 this reaches exactly the processes of this sandbox. */
    if (getpid() == 1)
        (void)kill(-1, SIGKILL);
    return r < 0;
}
