/* flock() of a file system without a lock service: fails with the number in FLOCK_ERROR, or, where
 * that is 0, never answers. Loaded with LD_PRELOAD. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int flock(int fd, int how)
{
    const char *number = getenv("FLOCK_ERROR");
    (void)fd;
    (void)how;
    errno = number ? atoi(number) : ENOLCK;
    while (errno == 0) {
        pause();
        errno = 0;
    }
    return -1;
}
