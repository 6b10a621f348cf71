# shale_add_plugin(<name> a.c ...): a plugin <name>.so that exports shale_plugin_entry_v1 and nothing else.
# The same function builds the plugins shipped with shale and, after find_package(shale), those of others.
include_guard(GLOBAL)
set(SHALE_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map)

function(shale_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE shale::sdk)
  target_link_options(${name} PRIVATE -Wl,--version-script=${SHALE_PLUGIN_MAP} -Wl,-z,defs,-z,now,-z,relro)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES) # a plugin's project may know only one of the two
  if(C IN_LIST languages)
    target_compile_features(${name} PRIVATE c_std_11)
  endif()
  if(CXX IN_LIST languages)
    target_compile_features(${name} PRIVATE cxx_std_20)
  endif()
  set_target_properties(${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON LINK_DEPENDS ${SHALE_PLUGIN_MAP})
endfunction()
