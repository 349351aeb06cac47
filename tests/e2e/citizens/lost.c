/* Memory of which some cannot be read back, and looks at the own threads, for each of which the agent
   goes, and comes back. What is left is right, and what is lost is not there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES ((100L << 20) / PAGE)

/* As many bits as bytes: nothing is compressed. */
static void make(unsigned long *page, unsigned long number)
{
    unsigned long state = number + 1;
    for (int at = 0; at < PAGE / 8; at++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        page[at] = state ^ state >> 29;
    }
}

int main(void)
{
    static unsigned long right[PAGE / 8], found[PAGE / 8];
    struct stat threads;
    char *memory = aligned_alloc(PAGE, PAGES * PAGE);
    int lost[2] = {0, 0}, pipes[2];
    if (!memory || pipe(pipes) != 0)
        return 1;
    for (long page = 0; page < PAGES; page++)
        make((unsigned long *)(memory + page * PAGE), page);
    for (int round = 0; round < 2; round++) {
        if (stat("/proc/self/task", &threads) != 0)
            return 2;
        for (long page = 0; page < PAGES; page++) {
            make(right, page);
            if (write(pipes[1], memory + page * PAGE, PAGE) != PAGE) {
                if (errno != EFAULT)
                    return 3;
                lost[round]++;
            } else if (read(pipes[0], found, PAGE) != PAGE || memcmp(found, right, PAGE)) {
                fprintf(stderr, "round %d: page %ld is wrong\n", round, page);
                return 4;
            }
        }
    }
    fprintf(stderr, "lost: %d pages, then %d\n", lost[0], lost[1]);
    return lost[0] > 0 ? 0 : 5;
}
