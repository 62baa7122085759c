"""How closely the simulator agrees with real packets over real TCP."""
