/* parent MIB CHILDREN [BUFFER_MIB]: fills so much, makes children that read all of it, now and after two seconds,
 * and at once stores to all of it; or maps, fills and frees a buffer, over and over, until they end. Children
 * find what was there at the fork. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long random_word(void) {
    static unsigned long word = 88172645463325252UL;
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    return word;
}

static void fill(unsigned long *memory, size_t words) {
    for (size_t word = 0; word < words; word++)
        memory[word] = random_word();
}

static unsigned long sum(const unsigned long *memory, size_t words) {
    unsigned long sum = 0;
    for (size_t word = 0; word < words; word++)
        sum += memory[word] ^ word;
    return sum;
}

static void fill_and_free(size_t bytes) {
    unsigned long *buffer = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        _exit(71);
    fill(buffer, bytes / sizeof(long));
    munmap(buffer, bytes);
}

int main(int count, char **words_given) {
    if (count < 3 || count > 4)
        return 64;
    size_t bytes = strtoul(words_given[1], 0, 10) << 20, words = bytes / sizeof(long);
    unsigned long *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 71;
    fill(memory, words);
    unsigned long right = sum(memory, words);
    for (int child = atoi(words_given[2]); child > 0; child--)
        if (fork() == 0) {
            int differs = sum(memory, words) != right;
            sleep(2);
            _exit(differs || sum(memory, words) != right);
        }
    int status, differ = 0;
    if (count == 3)
        fill(memory, words);
    else
        for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) >= 0; fill_and_free(atol(words_given[3]) << 20))
            differ |= ended && status;
    while (wait(&status) > 0)
        differ |= status;
    return differ || (count == 4 && sum(memory, words) != right);
}
