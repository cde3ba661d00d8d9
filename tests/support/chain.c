/* A chain of forks: each process ignores TERM, forks the next one, and exits.
 *
 *   chain MICROSECONDS [setsid] [empty] [parent]
 *
 * setsid: each generation is in a session of its own.  empty: the environment is emptied.
 * parent: the second generation kills the first one's parent.
 * It ends when its program has been removed, or by itself after ten minutes, and is slow where
 * nobody but init reaps it: a chain that has got away must not fill the process table.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
        if (fork() != 0)
            _exit(0);
        if (given(argv, "setsid"))
            setsid();
        usleep(getppid() == 1 ? 50000 : microseconds);
    }
    return 0;
}
