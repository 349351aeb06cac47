/* Leaves a process behind at once that is started with nothing in its environment, and holds so many MiB for
 * so many hundredths of a second. Linked statically, it bears no agent. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count > 3) {
        char *next[] = {words[0], words[1], words[2], 0}, *nothing[] = {0};
        if (fork()) _exit(0);
        execve(words[0], next, nothing);
        _exit(2);
    }
    if (count < 3) return 2;
    size_t len = strtoul(words[1], 0, 10) << 20;
    volatile char *memory = malloc(len);
    if (!memory) return 2;
    for (size_t at = 0; at < len; at += 4096) memory[at] = 1;
    usleep(strtoul(words[2], 0, 10) * 10000);
    return 0;
}
