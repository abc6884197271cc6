/* A network file system that repeats each link to a manifest or a pack: the first request has made
 * it, its answer was lost, and the second one finds the name taken. */
#include "faults.h"

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    int failed = real(from_directory, from, to_directory, to, flags);
    if (failed || !(strstr(to, "/generations/") || strstr(to, "/packs/"))) return failed;
    errno = EEXIST;
    return -1;
}
