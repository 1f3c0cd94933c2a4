/* use_dlopen LIBRARY BUNDLE: the C ABI of a library that is found when the program runs. */
#include <dlfcn.h>
#include <kbundle/kbundle_c.h>
#include <stdio.h>

typedef kb_error* (*Open)(const char*, const char*, kb_bundle**);
typedef kb_error* (*Verify)(const kb_bundle*);
typedef void (*Release)(kb_bundle*);

int main(int count, char** words) {
  void* library = count == 3 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  kb_bundle* bundle = NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", count == 3 ? dlerror() : "use_dlopen LIBRARY BUNDLE");
    return 2;
  }
  if (((Open)dlsym(library, "kb_bundle_open"))(words[2], NULL, &bundle) != NULL) return 1;
  if (((Verify)dlsym(library, "kb_bundle_verify"))(bundle) != NULL) return 1;
  ((Release)dlsym(library, "kb_bundle_release"))(bundle);
  puts("verified");
  return 0;
}
