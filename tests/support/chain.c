/* A chain of forks: each process ignores TERM, forks the next one, and exits.
 *
 *   chain MICROSECONDS [setsid] [empty] [parent]
 *
 * setsid: each generation is in a session of its own.  empty: the environment is emptied.
 * parent: the second generation kills the first one's parent.
 * It ends when its program has been removed, or by itself after ten minutes. It is slow where
 * nobody but init reaps it, and where the machine has MOST processes, with the dead ones that
 * nobody has reaped yet: chains must not fill the process table. A fork that fails is tried again.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#define MOST 4000
#define SLOW 50000

static int given(char **argv, const char *word) {
    for (; *argv; argv++)
        if (!strcmp(*argv, word))
            return 1;
    return 0;
}

int main(int argc, char **argv) {
    int microseconds = atoi(argv[1]);
    int parent = getppid();
    time_t end = time(NULL) + 600;
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (given(argv, "empty") && environ[0]) {
        char *none[] = {NULL};
        execve(argv[0], argv, none);
    }
    write(1, "chain\n", 6);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (given(argv, "parent")) {
        if (fork() > 0)
            for (;;)
                pause();
        kill(parent, SIGKILL);
    }
    while (time(NULL) < end && !access(argv[0], F_OK)) {
        struct sysinfo machine = {0};
        int child = fork();
        if (child > 0)
            _exit(0);
        if (child == 0 && given(argv, "setsid"))
            setsid();
        sysinfo(&machine);
        usleep(child < 0 || getppid() == 1 || machine.procs > MOST ? SLOW : microseconds);
    }
    return 0;
}
