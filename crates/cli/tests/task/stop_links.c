/* Counts the links to manifests while there is a file STOP_IF. Without HANG_AFTER_LINK the first one
 * fails, and the process stops before the second one, as SIGSTOP does. With it, the first one is
 * made and never answered: process 1 of a namespace cannot stop itself. */
#include "faults.h"
#include <signal.h>

static unsigned links;

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    const char *condition = getenv("STOP_IF");
    if (!condition || access(condition, F_OK) != 0 || !strstr(to, "/generations/")) {
        return real(from_directory, from, to_directory, to, flags);
    }
    unsigned number = __sync_add_and_fetch(&links, 1);
    if (getenv("HANG_AFTER_LINK")) {
        int failed = real(from_directory, from, to_directory, to, flags);
        while (!failed) wait_millis(1000);
        return failed;
    }
    if (number == 1) {
        errno = EIO;
        return -1;
    }
    if (number == 2) raise(SIGSTOP);
    return real(from_directory, from, to_directory, to, flags);
}
