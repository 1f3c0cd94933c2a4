# What `cmake --install` puts where, for programs outside this tree:
#
#   lib/libkbundle.so.1              the C ABI and XLA's handlers                component runtime
#   include/kbundle/kbundle_*.h      the headers of the C ABI                    component development
#   lib/cmake/kbundle, lib/pkgconfig find_package(kbundle), pkg-config kbundle   component development
#   include/kbundle/                 the loader's C++ headers                    component loader
#   lib/libkbundle_loader.a          the loader behind the C++ headers           component loader
#   bin/kbundle                      the command                                 component command
#   libexec/kbundle, share/kbundle   what it starts, the headers of kernels      component command
#   share/man, share/bash-completion, share/zsh, share/fish
#                                    its manual page; what shells complete by    component command
#
# Each part looks for others from where it lies, so the prefix may be moved. Last of all the command still looks into the .venv
# and the kernel headers of the checkout that it was built in, unless KB_KNOWS_ITS_CHECKOUT is off. A wheel holds the first,
# second and last component (scripts/wheel).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The headers that are a promise; the others of loader/ and schemas/ are for this tree.
set(kb_public_headers allocator bundle check_plan cuts describe description explanation launch log modes open_bundles parts plan problem runtime select target)
list(TRANSFORM kb_public_headers REPLACE "(.+)" "loader/include/kbundle/\\1.h")
foreach(header dtype format sha256 status)
  list(APPEND kb_public_headers schemas/include/kbundle/${header}.h)
endforeach()

# One archive with all that the loader needs, so that who links it looks for nothing else. Names in ar's script must not hold
# blanks: ours are relative.
set(kb_archive "${PROJECT_BINARY_DIR}/libkbundle_loader.a")
file(WRITE "${PROJECT_BINARY_DIR}/loader_archive.mri" "create libkbundle_loader.a\naddlib loader/libkb_loader.a\n\
addlib schemas/libkb_schemas.a\naddlib ${KB_ZSTD_LIBRARY}\naddlib ${KB_SODIUM_LIBRARY}\nsave\nend\n")
add_custom_command(OUTPUT "${kb_archive}"
  COMMAND "${CMAKE_AR}" -M < loader_archive.mri
  WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
  DEPENDS kb_loader kb_schemas
  COMMENT "libkbundle_loader.a"
  VERBATIM)
add_custom_target(kb_loader_archive ALL DEPENDS "${kb_archive}")

set(kb_cmake_folder "${CMAKE_INSTALL_LIBDIR}/cmake/kbundle")
install(TARGETS kbundle_shared EXPORT kbundleTargets
        LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
install(FILES ffi/c/include/kbundle/kbundle_c.h ffi/c/include/kbundle/kbundle_describe.h
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kbundle"
        COMPONENT development)
install(FILES ${kb_public_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kbundle" COMPONENT loader)
install(FILES "${kb_archive}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT loader)

set_target_properties(kbundle PROPERTIES EXPORT_NAME command)
install(TARGETS kbundle EXPORT kbundleTargets RUNTIME COMPONENT command)
if(TARGET kb_planner)
  install(TARGETS kb_planner DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/kbundle" COMPONENT command)
  install(TARGETS kb_null_driver DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/kbundle/null_driver" COMPONENT command)
endif()

# The command itself writes its manual page and completions. Where each shell looks for them is the same for every prefix.
set(kb_shell_texts "")
function(kb_install_shell_text folder name)
  set(text "${PROJECT_BINARY_DIR}/${folder}/${name}")
  add_custom_command(OUTPUT "${text}" COMMAND kbundle ${ARGN} > "${text}" DEPENDS kbundle COMMENT "${name}: ${ARGN}" VERBATIM)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/${folder}")
  install(FILES "${text}" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/${folder}" COMPONENT command)
  set(kb_shell_texts ${kb_shell_texts} "${text}" PARENT_SCOPE)
endfunction()
kb_install_shell_text(man/man1 kbundle.1 man)
kb_install_shell_text(bash-completion/completions kbundle completion bash)
kb_install_shell_text(zsh/site-functions _kbundle completion zsh)
kb_install_shell_text(fish/vendor_completions.d kbundle.fish completion fish)
add_custom_target(kb_shell_texts ALL DEPENDS ${kb_shell_texts})

install(DIRECTORY kernels/include/kbundle DESTINATION "${CMAKE_INSTALL_DATADIR}/kbundle/include" COMPONENT command)

install(EXPORT kbundleTargets NAMESPACE kbundle:: DESTINATION "${kb_cmake_folder}" COMPONENT development)
configure_package_config_file(cmake/kbundleConfig.cmake.in "${PROJECT_BINARY_DIR}/kbundleConfig.cmake"
  INSTALL_DESTINATION "${kb_cmake_folder}" PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/kbundleConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kbundleConfig.cmake" "${PROJECT_BINARY_DIR}/kbundleConfigVersion.cmake"
              cmake/kbundle_add_bundle.cmake
        DESTINATION "${kb_cmake_folder}" COMPONENT development)
configure_file(cmake/kbundle.pc.in "${PROJECT_BINARY_DIR}/kbundle.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/kbundle.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
