# cmake --install: a prefix that can be moved. bin/shale, lib/shale/plugins/*.so, include/shale/*.h and the CMake
# package of the SDK. Only the path of LibTorch stays as it was built. core/cli installs the binary.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shale)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/sdk/include/shale DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS shale_sdk EXPORT shaleTargets)
install(EXPORT shaleTargets NAMESPACE shale:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_SOURCE_DIR}/sdk/cmake/shaleConfig.cmake.in
  ${CMAKE_BINARY_DIR}/package/shaleConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/shaleConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_BINARY_DIR}/package/shaleConfig.cmake ${CMAKE_BINARY_DIR}/package/shaleConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/sdk/cmake/ShalePlugin.cmake ${CMAKE_SOURCE_DIR}/sdk/cmake/plugin.map DESTINATION ${package_dir})
